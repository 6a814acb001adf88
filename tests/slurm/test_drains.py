# SPDX-License-Identifier: Apache-2.0
"""Jobs that a signal stops in mid-run: they drain, go back into the queue and finish."""

from __future__ import annotations

import unittest

from cluster import GREEDY, SlurmTest, batch
from harness import ALL_DONE

SAMPLED = {**GREEDY, "temperature": 0.8, "top_p": 0.95, "seed": 42}


class DrainTest(SlurmTest):
    def check_drain(self, launcher: str, ask: list[str], generation: dict) -> None:
        self.write_site(launcher=launcher)
        # Of ten thousand draws one falls so close to the border between two tokens that another order
        # of summation moves it over, so sampled answers are compared bit by bit.
        exact = {"reproducible": "layout"} if generation is SAMPLED else {}
        job = self.write_job(
            batch(300), generation=generation, batch={"max_sequences": 2, "order": "fcfs"}, **exact
        )
        reference = self.reference(job)
        job_id = self.submit(job)
        self.wait_for_done(job_id, job)
        self.call("scancel", *ask, job_id)
        self.wait_for_restart(job_id)
        before = self.results(job)
        self.check_unfinished(before, reference)
        self.wait_for_end(job_id, ALL_DONE)
        self.check_continued(job, before, self.check_finished(job, reference))
        self.assertIn("drained; what is open will be continued", self.log(job_id))

    def test_sigterm_to_the_ranks(self) -> None:
        self.check_drain("srun", ["--signal=TERM"], GREEDY)

    def test_sigusr1_to_script_launcher_and_ranks_while_sampling(self) -> None:
        self.check_drain("srun", ["--full", "--signal=USR1"], SAMPLED)

    def test_sigterm_to_the_script_of_mpirun(self) -> None:
        self.check_drain("mpirun", ["--batch", "--signal=TERM"], SAMPLED)

    def test_a_job_that_is_cancelled_drains_and_stays_cancelled(self) -> None:
        job = self.write_job(
            batch(300), generation=GREEDY, batch={"max_sequences": 2, "order": "fcfs"}
        )
        reference = self.reference(job)
        job_id = self.submit(job)
        self.wait_for_done(job_id, job)
        self.call("scancel", job_id)
        self.wait_for_state(job_id, "CANCELLED")
        self.assertEqual(self.facts(job_id)["Restarts"], "0")
        self.check_unfinished(self.results(job), reference)
        self.assertEqual(self.call("squeue", "--noheader"), "")


if __name__ == "__main__":
    unittest.main()
