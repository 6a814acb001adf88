# SPDX-License-Identifier: Apache-2.0
"""Whole runs with weights that are rounded to int8 or int4 at load: what they say of it, the same answers on every
layout, and what is refused."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from harness import ALL_CASES, DONE, MODEL, REFUSED, RunTest, random_requests

GENERATION: dict[str, Any] = {"max_new_tokens": 12, "ignore_eos": True, "logprobs": 1, "prompt_logprobs": 1}


ALL_LAYOUTS = {
    "int8": ({"cp": 3}, {"sp": 2}, {"tp": 2}, {"sp": 2, "tp": 2}, {"dp": 2, "cp": 2}),
    "int4": ({"cp": 3}, {"dp": 2}),
}


class IntegerWeightsTest(RunTest):
    model: ClassVar[Path] = MODEL
    layouts: ClassVar[dict[str, tuple[dict[str, int], ...]]] = (
        ALL_LAYOUTS
        if ALL_CASES
        else {"int8": ({"cp": 3}, {"sp": 2, "tp": 2}, {"dp": 2, "cp": 2}), "int4": ({"dp": 2},)}
    )

    def job_of(self, name: str, dtype: str, **parallel: int) -> Path:
        return self.write_job(
            random_requests(6, 30, 90, seed=91),
            name,
            generation=GENERATION,
            model={"path": str(self.model), "dtype": dtype, "compute": "fp32"},
            parallel=parallel,
        )

    def prompt_logprobs(self, job: Path) -> list[Any]:
        found = self.results(job)
        self.assertEqual(found.rows(DONE), list(range(6)))
        ends = found["prompt_slot_offsets"]
        values = found["prompt_token_logprob"]
        return [values[ends[row] + 1 : ends[row + 1]] for row in range(6)]

    def test_every_layout_gives_the_numbers_of_one_rank(self) -> None:
        whole = self.job_of("whole", "fp32")
        self.run_job(whole, 1)
        unrounded = np.concatenate(self.prompt_logprobs(whole))
        for dtype, layouts in self.layouts.items():
            alone = self.job_of(f"alone-{dtype}", dtype)
            words = self.run_job(alone, 1)
            self.assertRegex(words, rf"weights rounded to {dtype}, off by [\d.]+ %: q [\d.]+ %.*lm_head")
            self.assertEqual(self.report(alone)["model"]["quantization"]["dtype"], dtype)
            wanted = np.concatenate(self.prompt_logprobs(alone))
            rounding_off = float(np.sqrt(np.mean((wanted - unrounded) ** 2)))
            for layout in layouts:
                with self.subTest(dtype=dtype, layout=layout):
                    job = self.job_of("-".join([dtype, *layout]), dtype, **layout)
                    ranks = int(np.prod(list(layout.values())))
                    self.run_job(job, ranks)
                    # Of rows that are cut, each rank rounds its part by that part's own maximum: off by
                    # another rounding, √2 of one as a rule.
                    cut = layout.get("tp", 1) > 1
                    found = np.concatenate(self.prompt_logprobs(job))
                    self.assertTrue(np.isfinite(found).all())
                    difference = float(np.sqrt(np.mean((found - wanted) ** 2)))
                    self.assertLess(difference, 2 * rounding_off if cut else 1e-4)

    def test_rounding_is_as_small_as_its_bits_allow(self) -> None:
        whole = self.job_of("whole", "fp32")
        self.run_job(whole, 1)
        wanted = np.concatenate(self.prompt_logprobs(whole))
        errors = {}
        for dtype in ("int8", "int4"):
            job = self.job_of(dtype, dtype)
            self.run_job(job, 1)
            found = np.concatenate(self.prompt_logprobs(job))
            errors[dtype] = float(np.sqrt(np.mean((found - wanted) ** 2)))
            # A step of int8 is 1/127 of a row's greatest, of int4 2/15 of a group's half range.
            expected = {"int8": (0.002, 0.01), "int4": (0.03, 0.15)}[dtype]
            total = self.report(job)["model"]["quantization"]["error"]["total"]
            self.assertTrue(expected[0] < total < expected[1], total)
        self.assertGreater(errors["int8"], 1e-5)
        self.assertLess(errors["int8"], errors["int4"] / 4)
        self.assertLess(errors["int4"], 1)

    def test_what_is_not_there_is_refused(self) -> None:
        for dtype, settings, words in (
            ("int4", ["parallel.tp=2"], "a group of 128 numbers is not cut"),
            ("int4", ["parallel.sp=2"], "use cp and dp, or dtype: int8"),
            ("int8", ["reproducible=layout"], "reproducible: layout with model.dtype: int8"),
        ):
            with self.subTest(dtype=dtype, settings=settings):
                job = self.job_of("refused", dtype)
                options = [part for setting in settings for part in ("--set", setting)]
                self.assertIn(words, self.run_job(job, 2, *options, expect=REFUSED))


class IntegerExpertsTest(IntegerWeightsTest):
    """The same with mixtures of experts, whose router is not rounded."""

    model = MODEL.parent / "qwen3moe-raw-step2"
    layouts = ALL_LAYOUTS if ALL_CASES else {"int8": ({"sp": 2}, {"tp": 2}), "int4": ({"cp": 3},)}

    def test_experts_are_rounded_and_routers_are_not(self) -> None:
        job = self.job_of("experts", "int4")
        words = self.run_job(job, 1)
        self.assertRegex(words, r"expert gate [\d.]+ %, expert up [\d.]+ %, expert down [\d.]+ %")
        self.assertNotIn("router", words)


if __name__ == "__main__":
    unittest.main()
