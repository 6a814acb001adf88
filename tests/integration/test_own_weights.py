# SPDX-License-Identifier: Apache-2.0
"""Ranks that keep weights of their own, or that have them from memory into which hosts read them together, compute what
those that share the mapped files do. So do ranks that share packed weights."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

from harness import DONE, MODEL, Results, RunTest, random_requests

BF16_MODEL = MODEL.parent / "qwen3moe-norm-dense"
HAS_BF16 = "avx512_bf16" in Path("/proc/cpuinfo").read_text()


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

    def packed_job(self, prepack: bool | str, **settings: object) -> Path:
        model = {"path": str(BF16_MODEL), "prepack": prepack} | settings.pop("model", {})
        return self.write_job(
            random_requests(4, 5, 60, seed=3),
            "-".join(["packed", str(prepack), *settings.get("parallel", {}), *model]),
            generation={"max_new_tokens": 6, "ignore_eos": True, "logprobs": 2},
            model=model,
            reproducible="layout",
            **settings,
        )

    @unittest.skipUnless(HAS_BF16, "this CPU has no products of bf16")
    def test_packed(self) -> None:
        """With reproducible: layout the bits do not depend on panels. auto packs mapped weights of bf16."""
        whole = self.packed_job(False)
        self.assertNotIn("weights packed", self.run_job(whole, 1))
        wanted = self.results(whole)
        self.assertEqual(wanted.rows(DONE), [0, 1, 2, 3])
        for prepack, ranks, parallel in (("auto", 1, {}), (True, 2, {"cp": 2}), (True, 2, {"tp": 2})):
            with self.subTest(prepack=prepack, parallel=parallel):
                job = self.packed_job(prepack, parallel=parallel)
                self.assertRegex(self.run_job(job, ranks), r"weights packed: [\d.]+ [KM]iB on each host")
                found = self.results(job)
                for row in range(4):
                    for column in ("tokens", "token_logprob"):
                        self.assertEqual(
                            found.slots(row, column).tobytes(), wanted.slots(row, column).tobytes()
                        )

    @unittest.skipUnless(HAS_BF16, "this CPU has no products of bf16")
    def test_packed_for_shift(self) -> None:
        """Where steps may be shifted, the columns of the shift configuration have panels of their own."""
        packed = {}
        wanted = None
        for decode in ({"decode": "sp"}, {"decode": "shift", "shift_threshold": 4}):
            job = self.packed_job(True, parallel={"sp": 2, **decode})
            words = self.run_job(job, 2)
            found = re.search(r"weights packed: ([\d.]+) KiB on each host", words)
            assert found, words
            packed[decode["decode"]] = float(found[1])
            results = self.results(job)
            self.assertEqual(results.rows(DONE), [0, 1, 2, 3])
            wanted = wanted or results
            for row in range(4):
                for column in ("tokens", "token_logprob"):
                    self.assertEqual(
                        results.slots(row, column).tobytes(), wanted.slots(row, column).tobytes()
                    )
        self.assertGreater(packed["shift"], packed["sp"])

    def test_what_cannot_be_packed(self) -> None:
        for settings, reason in (
            ({"compute": "fp32"}, "model.prepack: weights of bf16 have none on this backend"),
            ({"replicate": True}, "model.prepack: with model.replicate ranks do not share weights"),
        ):
            with self.subTest(**settings):
                job = self.packed_job(True, model=settings)
                self.assertIn(reason, self.run_job(job, 1, expect=2))

    def test_what_is_converted_is_not_copied_again(self) -> None:
        own, words = self.run_with(True, "fp16", cp=2)
        self.assertEqual(own.rows(DONE), [0, 1, 2, 3])
        self.assertNotIn("weights of all ranks", words)


if __name__ == "__main__":
    unittest.main()
