# SPDX-License-Identifier: Apache-2.0
"""A GPU that is lost in mid-run: one line says which rank, at what, why and what to do; what was done stays."""

from __future__ import annotations

import os
import unittest
from pathlib import Path

from harness import DONE, FAILURE, OPEN, RunTest, random_requests, wait_for

REQUESTS = random_requests(12, 5, 60, seed=23, every_second_turn=4)


class LostGpuTest(RunTest):
    def new_job(self, name: str, ranks: int) -> Path:
        # Transfers by way of the host: there is no double of NCCL that runs by itself.
        return self.write_job(
            REQUESTS,
            name,
            generation={"max_new_tokens": 24, "ignore_eos": True, "logprobs": 2},
            batch={"max_sequences": 3},
            parallel={"ring": "pass_kv" if ranks > 1 else "auto"},  # not measured on CPUs
            backend="cuda",
            allow_gpu_sharing=True,
        )

    def test_ends_the_job_and_the_same_command_continues(self) -> None:
        whole = self.new_job("whole", 1)
        self.run_job(whole, 1)
        reference = self.results(whole)
        self.assertEqual(reference.rows(DONE), list(range(len(reference["state"]))))
        modes = self.report(whole)["modes"]
        self.assertEqual(modes["attention_library"], "none: a separate device has none")
        counted = {"launched", "made", "piecemeal", "joint", "disagreed", "why_not", "why_not_joint"}
        self.assertEqual(set(modes["graphs"]), counted)
        self.assertEqual(modes["graphs"]["why_not"], "")
        self.assertEqual(modes["graphs"]["why_not_joint"], "", "one rank has no sums")
        for ranks, victim in ((1, 0), (2, 0), (2, 1)):
            with self.subTest(ranks=ranks, victim=victim):
                job = self.new_job(f"lost-{ranks}-{victim}", ranks)
                loss = self.folder / f"loss-{ranks}-{victim}"
                launch = self.start(job, ranks, environment={"PECIA_LOSE_GPU": f"{victim}:{loss}"})
                wait_for("a row", lambda job=job: self.done(job) >= 1)
                loss.touch()
                self.assertEqual(launch.wait(), FAILURE, launch.words())
                wait_for("all processes to end", lambda launch=launch: not launch.processes(), 10)
                lines = [text for text in launch.words().splitlines() if text.startswith("pecia: rank")]
                self.assertEqual(len(lines), 1, launch.words())
                self.assertRegex(
                    lines[0],
                    rf"^pecia: rank {victim} \(host {os.uname().nodename}\), in phase (prefill|decode|mixed), "
                    r"pass \d+.*: an illegal memory access was encountered \(cudaErrorIllegalAddress, in .*\)\. "
                    r"The GPU can no longer be used by this process\. Finished requests are safe; run the same "
                    r"command again to continue\.$",
                )
                before = self.results(job)
                self.assertEqual(sorted(before.rows(DONE) + before.rows(OPEN)), reference.rows(DONE))
                self.assertGreater(len(before.rows(OPEN)), 0, "the GPU was lost too late")

                self.run_job(job, ranks)
                after = self.results(job)
                self.assertEqual(after.rows(DONE), reference.rows(DONE))
                self.assert_same_answers(after, reference, reference.rows(DONE))
                for row in before.rows(DONE):
                    self.assertEqual(after.row_bytes(row), before.row_bytes(row), f"row {row}")


if __name__ == "__main__":
    unittest.main()
