# SPDX-License-Identifier: Apache-2.0
"""Jobs that continue one another without requeueing, and jobs that do not get on."""

from __future__ import annotations

import unittest

from cluster import GREEDY, SlurmTest, batch
from harness import ALL_DONE, DRAINED, random_requests


class ChainTest(SlurmTest):
    def test_the_next_job_continues_and_the_one_after_is_cancelled(self) -> None:
        job = self.write_job(
            batch(300), generation=GREEDY, batch={"max_sequences": 2, "order": "fcfs"}
        )
        reference = self.reference(job)
        first, second, third = self.call("jobs/slurm/chain.sh", 3, job, "--nodes=4").splitlines()
        self.wait_for_done(first, job)
        self.call("scancel", "--signal=TERM", first)
        self.wait_for_end(first, DRAINED)
        before = self.results(job)
        self.check_unfinished(before, reference)
        self.wait_for_end(second, ALL_DONE)
        self.check_continued(job, before, self.check_finished(job, reference))
        self.wait_for_state(third, "CANCELLED")
        self.assertEqual(self.log(third), "", "it never ran")


class StuckTest(SlurmTest):
    def test_starts_that_add_nothing_are_not_repeated(self) -> None:
        # A request that does not come before the signal does.
        requests = random_requests(2, 5, 9, seed=1)
        requests[0].arrival_s, requests[1].arrival_s = 0.0, 10000.0
        job = self.write_job(requests, generation=GREEDY, batch={"arrivals": "replay"})
        job_id = self.submit(job, nodes=2)
        self.wait_for_done(job_id, job)
        lock = self.output(job) / ".lock"
        for start in range(3):
            self.wait_for_restart(job_id, start)
            self.wait_for(job_id, "a run under way", lock.exists)
            self.call("scancel", "--batch", "--signal=USR1", job_id)
            self.wait_for(job_id, "its end", lambda: not lock.exists())
        self.wait_for_end(job_id, DRAINED)
        self.assertEqual(self.facts(job_id)["Restarts"], "2")
        self.assertIn("two starts have added nothing", self.log(job_id))


if __name__ == "__main__":
    unittest.main()
