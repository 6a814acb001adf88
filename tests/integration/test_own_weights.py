# SPDX-License-Identifier: Apache-2.0
"""Ranks that keep weights of their own, or that have them from memory into which hosts read them together, compute what
those that share the mapped files do."""

from __future__ import annotations

import unittest
from pathlib import Path

from harness import DONE, MODEL, Results, RunTest, random_requests


class OwnWeightsTest(RunTest):
    def job(self, replicate: bool, dtype: str, load: str = "mapped", **parallel: int) -> Path:
        return self.write_job(
            random_requests(4, 5, 60, seed=3),
            "-".join([str(replicate), dtype, load, *parallel]),
            generation={"max_new_tokens": 6, "ignore_eos": True, "logprobs": 2},
            model={"replicate": replicate, "dtype": dtype, "load": load},
            parallel=parallel,
        )

    def run_with(self, replicate: bool, dtype: str, **parallel: int) -> tuple[Results, str]:
        job = self.job(replicate, dtype, **parallel)
        words = self.run_job(job, 2)
        return self.results(job), words

    def test_same_bits(self) -> None:
        for parallel in ({"cp": 2}, {"tp": 2}):
            with self.subTest(parallel=parallel):
                shared, words = self.run_with(False, "auto", **parallel)
                self.assertNotIn("weights of all ranks", words)
                own, words = self.run_with(True, "auto", **parallel)
                self.assertIn("weights of all ranks", words)
                self.assertEqual(own.rows(DONE), [0, 1, 2, 3])
                for row in range(4):
                    for column in ("tokens", "token_logprob"):
                        self.assertEqual(
                            own.slots(row, column).tobytes(), shared.slots(row, column).tobytes()
                        )

    def test_spread(self) -> None:
        """As mapped, also where the memory is given back since ranks have copies (replicate, int8)."""
        for replicate, dtype in ((False, "auto"), (False, "fp16"), (True, "auto"), (False, "int8")):
            with self.subTest(replicate=replicate, dtype=dtype):
                mapped, words = self.run_with(replicate, dtype, tp=2)
                self.assertNotIn("1 host read", words)
                job = self.job(replicate, dtype, "spread", tp=2)
                self.assertIn("weights: 1 host read", self.run_job(job, 2))
                files = sum(file.stat().st_size for file in MODEL.glob("*.safetensors"))
                self.assertEqual(self.report(job)["model"]["read_bytes_by_host"], [files])
                spread = self.results(job)
                self.assertEqual(spread.rows(DONE), [0, 1, 2, 3])
                for row in range(4):
                    for column in ("tokens", "token_logprob"):
                        self.assertEqual(
                            spread.slots(row, column).tobytes(), mapped.slots(row, column).tobytes()
                        )

    def test_what_is_converted_is_not_copied_again(self) -> None:
        own, words = self.run_with(True, "fp16", cp=2)
        self.assertEqual(own.rows(DONE), [0, 1, 2, 3])
        self.assertNotIn("weights of all ranks", words)


if __name__ == "__main__":
    unittest.main()
