# SPDX-License-Identifier: Apache-2.0
"""Ranks that keep weights of their own compute what those that share the mapped files do."""

from __future__ import annotations

import unittest

from harness import DONE, Results, RunTest, random_requests


class OwnWeightsTest(RunTest):
    def run_with(self, replicate: bool, dtype: str, **parallel: int) -> tuple[Results, str]:
        job = self.write_job(
            random_requests(4, 5, 60, seed=3),
            "-".join([str(replicate), dtype, *parallel]),
            generation={"max_new_tokens": 6, "ignore_eos": True, "logprobs": 2},
            model={"replicate": replicate, "dtype": dtype},
            parallel=parallel,
        )
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

    def test_what_is_converted_is_not_copied_again(self) -> None:
        own, words = self.run_with(True, "fp16", cp=2)
        self.assertEqual(own.rows(DONE), [0, 1, 2, 3])
        self.assertNotIn("weights of all ranks", words)


if __name__ == "__main__":
    unittest.main()
