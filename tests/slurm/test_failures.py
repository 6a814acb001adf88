# SPDX-License-Identifier: Apache-2.0
"""Jobs that lose a node or a rank: Slurm, or the script, starts them again."""

from __future__ import annotations

import unittest
from pathlib import Path

from cluster import GREEDY, SlurmTest, batch
from harness import ALL_DONE


class FailureTest(SlurmTest):
    def slow_job(self, name: str) -> Path:
        return self.write_job(
            batch(700), name, generation=GREEDY, batch={"max_sequences": 2, "order": "fcfs"}
        )

    def test_nodes_that_vanish(self) -> None:
        """One job loses the node of its script, the other another one; both nodes come back."""
        nodes = {"first": ("n1", "n2", "n2"), "second": ("n3", "n4", "n3")}
        jobs = {name: self.slow_job(name) for name in nodes}
        reference = self.reference(jobs["first"])
        job_ids = {
            name: self.submit(jobs[name], f"--nodelist={one},{other}", nodes=2)
            for name, (one, other, _) in nodes.items()
        }
        for name, (_, _, victim) in nodes.items():
            self.wait_for_done(job_ids[name], jobs[name])
            self.sandbox("kill-node", victim)
        for name, (_, _, victim) in nodes.items():
            self.wait_for_restart(job_ids[name])
            self.check_unfinished(self.results(jobs[name]), reference)
            self.sandbox("start-node", victim)
        for name in nodes:
            self.wait_for_end(job_ids[name], ALL_DONE)
            self.check_finished(jobs[name], reference)

    def test_a_rank_that_is_killed(self) -> None:
        job = self.slow_job("job")
        reference = self.reference(job)
        job_id = self.submit(job)
        self.wait_for_done(job_id, job)
        self.kill("pecia", "n2")
        self.wait_for_restart(job_id)
        self.check_unfinished(self.results(job), reference)
        self.wait_for_end(job_id, ALL_DONE)
        self.check_finished(job, reference)


if __name__ == "__main__":
    unittest.main()
