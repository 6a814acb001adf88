# SPDX-License-Identifier: Apache-2.0
"""A job whose time limit comes before its work is done."""

from __future__ import annotations

import unittest

from cluster import GREEDY, SlurmTest, batch
from harness import ALL_DONE


class WallTimeTest(SlurmTest):
    def test_slurm_warns_the_script_in_time_and_the_job_continues(self) -> None:
        # Slurm looks at its clocks every 30 s and warns at the last look before the time that --signal names: of a
        # minute with a warning of 15 s, after 15 to 45 s. The last request comes later than that.
        requests = batch(40)
        for request in requests:
            request.arrival_s = 0.0
        requests[-1].arrival_s = 50.0
        reference = self.reference(self.write_job(requests, generation=GREEDY))
        job = self.write_job(generation=GREEDY, batch={"arrivals": "replay"})
        job_id = self.submit(job, "--time=1", "--signal=B:USR1@15")
        self.wait_for_restart(job_id)
        before = self.results(job)
        self.check_unfinished(before, reference)
        self.call("scontrol", "update", f"JobId={job_id}", "TimeLimit=30")
        self.wait_for_end(job_id, ALL_DONE)
        self.check_continued(job, before, self.check_finished(job, reference))
        self.assertEqual(self.facts(job_id)["Restarts"], "1")


if __name__ == "__main__":
    unittest.main()
