# SPDX-License-Identifier: Apache-2.0
"""Disturbances of every kind, at random moments, until the job is done all the same."""

from __future__ import annotations

import os
import random
import unittest

from cluster import GREEDY, NODES, SlurmTest, batch
from harness import ALL_DONE, random_draw

ROUNDS = int(os.environ.get("PECIA_TEST_ROUNDS", "4"))


class MomentsTest(SlurmTest):
    def disturb(self, kind: str, job_id: str, draw: random.Random) -> None:
        if kind == "signal":
            self.call("scancel", "--signal=TERM", job_id)
        elif kind == "rank":
            self.kill("pecia", draw.choice(NODES))
        elif kind == "mpirun":
            self.kill("mpirun", "n1")  # where the script runs
        else:
            node = draw.choice(NODES)
            self.sandbox("kill-node", node)
            self.wait_for_restart(job_id)
            self.sandbox("start-node", node)

    def test_any_disturbance_at_any_moment(self) -> None:
        draw = random_draw()
        for number in range(ROUNDS):
            kind = ("signal", "rank", "node", "mpirun")[number % 4]
            with self.subTest(round=number, kind=kind):
                self.write_site(launcher="mpirun" if kind == "mpirun" else "srun")
                job = self.write_job(
                    batch(300),
                    f"job-{number}",
                    generation=GREEDY,
                    batch={"max_sequences": 2, "order": "fcfs"},
                )
                reference = self.reference(job)
                job_id = self.submit(job)
                self.wait_for_done(job_id, job, draw.randint(1, 20))
                self.disturb(kind, job_id, draw)
                self.wait_for_end(job_id, ALL_DONE)
                self.check_finished(job, reference)
                self.assertGreater(int(self.facts(job_id)["Restarts"]), 0)


if __name__ == "__main__":
    unittest.main()
