# SPDX-License-Identifier: Apache-2.0
"""Whole runs with an FP8 KV cache: what they say of it, its memory, and the same answers everywhere."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

from harness import DONE, PARTIAL, RunTest, random_requests

GENERATION: dict[str, Any] = {"max_new_tokens": 60, "ignore_eos": True, "logprobs": 2}


class Fp8Test(RunTest):
    def job_of(self, name: str, dtype: str, memory: str = "auto") -> Path:
        return self.write_job(
            random_requests(12, 30, 90, seed=91),
            name,
            generation=GENERATION,
            kv={"dtype": dtype, "memory": memory},
            batch={"max_sequences": 6, "max_batch_tokens": 64},
            reproducible="layout",
        )

    def test_the_same_bits_on_any_layout_and_after_a_kill(self) -> None:
        alone = self.job_of("alone", "fp8")
        words = self.run_job(alone, 1)
        self.assertRegex(words, r"· KV fp8 [\d.]+ \w+ per rank ·")
        self.assertEqual(self.report(alone)["modes"]["kv_dtype"], "fp8")
        wanted = self.results(alone)
        rows = wanted.rows(DONE)
        self.assertEqual(len(rows), 12)

        killed = self.job_of("killed", "fp8")
        launch = self.start(killed, 2)
        while self.done(killed) == 0:
            self.assertTrue(launch.runs_for(0.01), launch.words())
        launch.kill()
        # An answer that is continued is read as a prompt, which is cut otherwise.
        continued = self.results(killed).rows(PARTIAL)
        for job, ranks, options in (
            (self.job_of("ring", "fp8"), 4, ()),
            (self.job_of("heads", "fp8"), 2, ("--set", "parallel.sp=2")),
            (killed, 2, ()),
        ):
            with self.subTest(job.name):
                self.run_job(job, ranks, *options)
                found = self.results(job)
                self.assertEqual(found.rows(DONE), rows)
                for row in set(rows) - set(continued if job is killed else []):
                    for column in ("tokens", "token_logprob"):
                        self.assertEqual(found.slots(row, column).tobytes(),
                                         wanted.slots(row, column).tobytes(), f"row {row}")

    def test_memory_holds_more_tokens(self) -> None:
        # 2 layers × K and V × 4 heads × 8 elements of 2 bytes, or of 1 and 4 for the scale.
        for dtype, token_bytes in (("bf16", 256), ("fp8", 192)):
            with self.subTest(dtype):
                job = self.job_of(dtype, dtype, "128KiB")
                self.run_job(job, 1)
                self.assertEqual(self.report(job)["modes"]["kv_tokens_per_rank"],
                                 128 * 1024 // token_bytes)


if __name__ == "__main__":
    unittest.main()
