"""Processors with fewer instructions than this one, by emulation of a user's process."""

from __future__ import annotations

import os
import unittest

from harness import ALL_DONE, DONE, PROGRAM, REFUSED, RunTest, random_requests

QEMU = os.environ["PECIA_QEMU"]


class OldCpuTest(RunTest):
    def run_on(self, cpu: str, backend: str, expect: int) -> str:
        name = f"{cpu}-{backend}"
        self.job = self.write_job(
            random_requests(2, 5, 12, seed=3),
            name,
            backend=backend,
            generation={"max_new_tokens": 3, "ignore_eos": True, "logprobs": 1},
        )
        before = [] if cpu == "this" else [QEMU, "-cpu", cpu]
        return self.end(self.launch([*before, PROGRAM, "run", self.job]), expect)

    def test_without_avx2_the_cpu_backend_refuses_and_the_reference_works(self) -> None:
        words = self.run_on("Westmere", "cpu", REFUSED)
        self.assertIn("this CPU has no AVX2", words)
        self.assertIn("backend: reference", words, "it says what works here")
        self.assertFalse(self.output(self.job).exists(), "it refuses before it writes")
        self.run_on("Westmere", "reference", ALL_DONE)
        found = self.results(self.job)
        self.run_on("this", "reference", ALL_DONE)
        self.assert_same_answers(found, self.results(self.job), [0, 1])

    def test_avx2_is_enough(self) -> None:
        self.run_on("Haswell", "cpu", ALL_DONE)
        found = self.results(self.job)
        self.assertEqual(found.rows(DONE), [0, 1])
        self.run_on("this", "cpu", ALL_DONE)
        self.assert_same_answers(found, self.results(self.job), [0, 1])


if __name__ == "__main__":
    unittest.main()
