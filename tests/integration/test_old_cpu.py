# SPDX-License-Identifier: Apache-2.0
"""Processors with fewer instructions than this one, by emulation of a user's process."""

from __future__ import annotations

import os
import unittest
from typing import Optional

from harness import ALL_DONE, DONE, PROGRAM, REFUSED, RunTest, random_requests

QEMU = os.environ["PECIA_QEMU"]

EMULATED_LIMIT_S = 240.0  # the peaks of the hardware are measured there too


class OldCpuTest(RunTest):
    def run_on(self, cpu: Optional[str], expect: int) -> str:
        """On this processor itself where none is named."""
        self.job = self.write_job(
            random_requests(2, 5, 12, seed=3),
            cpu or "this",
            generation={"max_new_tokens": 3, "ignore_eos": True, "logprobs": 1},
        )
        before = [QEMU, "-cpu", cpu] if cpu else []
        launch = self.launch([*before, PROGRAM, "run", self.job])
        launch.wait(EMULATED_LIMIT_S)
        return self.end(launch, expect)

    def test_without_avx2_it_refuses_before_it_writes(self) -> None:
        words = self.run_on("Westmere", REFUSED)
        self.assertIn("this CPU has no AVX2", words)
        self.assertIn("choose a machine with it", words)
        self.assertFalse(self.output(self.job).exists())

    def test_avx2_is_enough(self) -> None:
        self.run_on("Haswell", ALL_DONE)
        found = self.results(self.job)
        self.assertEqual(found.rows(DONE), [0, 1])
        self.run_on(None, ALL_DONE)
        self.assert_same_answers(found, self.results(self.job), [0, 1])


if __name__ == "__main__":
    unittest.main()
