"""Jobs that lose a node or a rank: Slurm, or the script, starts them again."""

from __future__ import annotations

import unittest

from cluster import GREEDY, NODES, SlurmTest, batch
from harness import ALL_DONE


class FailureTest(SlurmTest):
    def slow_job(self):
        return self.write_job(
            batch(600), generation=GREEDY, batch={"max_sequences": 2, "order": "fcfs"}
        )

    def test_nodes_that_vanish(self) -> None:
        """First another node than that of the script, then that one."""
        job = self.slow_job()
        reference = self.reference(job)
        job_id = self.submit(job)
        for number, node in enumerate((NODES[2], NODES[0])):
            done = self.done(job)
            self.wait_for_done(job_id, job, done + 1)
            self.sandbox("kill-node", node)
            self.wait_for_restart(job_id, number + 1)
            self.check_unfinished(self.results(job), reference)
            self.sandbox("start-node", node)
        self.wait_for_end(job_id, ALL_DONE)
        self.check_finished(job, reference)

    def test_a_rank_that_is_killed(self) -> None:
        job = self.slow_job()
        reference = self.reference(job)
        job_id = self.submit(job)
        self.wait_for_done(job_id, job)
        self.kill_ranks(NODES[1])
        self.wait_for_restart(job_id)
        self.check_unfinished(self.results(job), reference)
        self.wait_for_end(job_id, ALL_DONE)
        self.check_finished(job, reference)


if __name__ == "__main__":
    unittest.main()
