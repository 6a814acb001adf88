# SPDX-License-Identifier: Apache-2.0
"""Whole runs of checkpoints that are stored as codes (GPTQ, AWQ, compressed-tensors, fp8), beside runs of the numbers
that numpy makes of them: the same answers on every layout, what a run says of its weights, and what is refused."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from typing import Any

import numpy as np

import stored_codes as forms
from harness import ALL_CASES, DONE, REFUSED, SOURCE, RunTest, random_requests

GENERATION: dict[str, Any] = {"max_new_tokens": 6, "ignore_eos": True, "logprobs": 1, "prompt_logprobs": 1}
REQUESTS = 4
INT8 = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128}
FP8 = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}
NVFP4 = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16}


def gptq_config(group: int, **more: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": False, **more}


def awq_config(group: int) -> dict[str, Any]:
    return {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}


# What is kept as codes, and what numbers a wider form has.
KEPT = {
    "gptq-128": (forms.gptq(128), gptq_config(128), "int4"),
    "gptq-64": (forms.gptq(64), gptq_config(64), "int4"),
    "gptq-32-v2": (forms.gptq(32, less_one=False), gptq_config(32, checkpoint_format="gptq_v2"), "int4"),
    "gptq-rows": (forms.gptq(-1), gptq_config(-1), "int4"),
    "awq-128": (forms.awq(128), awq_config(128), "int4"),
    "awq-32": (forms.awq(32), awq_config(32), "int4"),
    "packed-128": (forms.packed(128), forms.compressed("pack-quantized", INT4), "int4"),
    "packed-zeros": (
        forms.packed(64, symmetric=False),
        forms.compressed("pack-quantized", {**INT4, "group_size": 64, "symmetric": False}),
        "int4",
    ),
    "packed-rows-8": (
        forms.packed(-1, bits=8),
        forms.compressed("pack-quantized", {**INT8, "strategy": "channel"}),
        "int8",
    ),
    "awq-symmetric": (forms.awq(64), {**awq_config(64), "zero_point": False}, "int4"),
    "int8": (forms.int8(), forms.compressed("int-quantized", INT8), "int8"),
    "int8-tensor": (forms.int8(True), forms.compressed("int-quantized", {**INT8, "strategy": "tensor"}), "int8"),
    "nvfp4": (forms.nvfp4(False), forms.compressed("nvfp4-pack-quantized", NVFP4), "nvfp4"),
    "nvfp4-modelopt": (
        forms.nvfp4(True),
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16},
        "nvfp4",
    ),
}
WIDENED = {
    "gptq-ordered": (forms.gptq(64, shuffled=True), gptq_config(64, desc_act=True), "desc_act"),
    "fp8": (forms.fp8(), forms.compressed("float-quantized", FP8), "no products on CPUs take codes of fp8"),
    "gptq-8": (forms.gptq(64, bits=8), {**gptq_config(64), "bits": 8}, "8 bits only with one scale"),
    "packed-zeros-8": (
        forms.packed(64, symmetric=False, bits=8),
        forms.compressed("pack-quantized", {**INT4, "num_bits": 8, "group_size": 64, "symmetric": False}),
        "8 bits only with one scale",
    ),
    "fp8-inverse": (
        forms.fp8_inverse,
        {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None},
        "no products on CPUs take codes of fp8",
    ),
    "fp8-static": (
        forms.fp8_static,
        {"quant_method": "fp8", "activation_scheme": "static"},
        "no products on CPUs take codes of fp8",
    ),
    "fp8-modelopt": (
        forms.fp8_static,
        {"quant_method": "modelopt", "quant_algo": "FP8"},
        "no products on CPUs take codes of fp8",
    ),
    "fp8-blocks": (
        forms.fp8(128, "weight_scale_inv"),
        {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
        "no products on CPUs take codes of fp8",
    ),
}

# Forms that small models have, with what divides the inputs of their matrices.
OF_FAMILIES: dict[str, tuple[forms.Form, dict[str, Any], int]] = {
    "nvfp4": (*KEPT["nvfp4-modelopt"][:2], 16),
    "int8": (*KEPT["int8"][:2], 1),
    "fp8-blocks": (
        forms.fp8(16, "weight_scale_inv"),
        {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [16, 16]},
        1,
    ),
    "gptq-32": (forms.gptq(32), gptq_config(32), 32),
}
FORMS_OF_FAMILIES = list(OF_FAMILIES)
GOLDENS = SOURCE / "tests" / "goldens"
FAMILIES = [
    "qwen3next-delta",
    "qwen35-tied",
    "qwen35moe-stacked",
    "granitehybrid-dense",
    "granitehybrid-experts",
    "nemotronh-blocks",
    "phi3-longrope",
    "glm-partial-rope",
    "internlm2",
    "deepseek3-groups",
    "glm4moelite-direct",
    "mistral4-temperature",
]


class StoredCodesTest(RunTest):
    def job_of(
        self, model: Path, name: str, compute: str = "fp32", reproducible: str = "run", **parallel: Any
    ) -> Path:
        return self.write_job(
            random_requests(REQUESTS, 20, 60, seed=92),
            name,
            generation=GENERATION,
            model={"path": str(model), "compute": compute},
            kv={"dtype": "fp32"},
            parallel=parallel,
            reproducible=reproducible,
        )

    def logprobs(self, job: Path) -> np.ndarray:
        found = self.results(job)
        self.assertEqual(found.rows(DONE), list(range(REQUESTS)))
        ends = found["prompt_slot_offsets"]
        values = found["prompt_token_logprob"]
        parts = [values[ends[row] + 1 : ends[row + 1]] for row in range(REQUESTS)]
        return np.concatenate([*parts, found["token_logprob"]])

    def expect_close(self, found: np.ndarray, wanted: np.ndarray, within: float = 1e-4) -> None:
        self.assertTrue(np.isfinite(found).all())
        self.assertLess(float(np.abs(found - wanted).max()), within)

    def test_codes_give_the_answers_of_the_numbers_they_stand_for(self) -> None:
        for name, (form, config, held) in KEPT.items():
            with self.subTest(form=name):
                plain = forms.write_model(self.folder / name, form, config)
                forms.write_plain(self.folder / f"{name}-plain", plain)
                wanted_job = self.job_of(self.folder / f"{name}-plain", f"{name}-wanted")
                self.run_job(wanted_job, 1)
                wanted = self.logprobs(wanted_job)
                job = self.job_of(self.folder / name, f"{name}-alone")
                said = self.run_job(job, 1)
                self.assertIn(f"{name} {held} ", said)
                self.assertNotIn("widened", said)
                self.assertEqual(self.report(job)["model"]["weights"], held)
                self.expect_close(self.logprobs(job), wanted)

    def test_layouts_give_the_answers_of_one_rank(self) -> None:
        for name in ("gptq-64", "int8", "nvfp4"):
            form, config, _ = KEPT[name]
            plain = forms.write_model(self.folder / name, form, config)
            forms.write_plain(self.folder / f"{name}-plain", plain)
            wanted_job = self.job_of(self.folder / f"{name}-plain", f"{name}-wanted")
            self.run_job(wanted_job, 1)
            wanted = self.logprobs(wanted_job)
            for layout in (
                {"cp": 2},
                {"tp": 2},
                {"tp": 2, "prefill": "sp_tp"},
                {"sp": 2, "decode": "shift", "shift_threshold": 8},
                {"tp": 4},
            ):
                with self.subTest(form=name, layout=layout):
                    words = "-".join(f"{key}-{value}" for key, value in layout.items())
                    job = self.job_of(self.folder / name, f"{name}-{words}", **layout)
                    ranks = layout.get("tp", 1) * layout.get("sp", 1) * layout.get("cp", 1)
                    said = self.run_job(job, ranks)
                    # Four parts of a row of 256 are half groups of int4.
                    self.assertEqual("widened" in said, layout.get("tp") == 4 and name == "gptq-64")
                    within = 0.02 if "widened" in said else 1e-4
                    self.expect_close(self.logprobs(job), wanted, within)

    def test_layouts_give_the_bits_of_one_rank_where_asked(self) -> None:
        form, config, _ = KEPT["nvfp4"]
        forms.write_model(self.folder / "model", form, config)
        found = []
        for layout in ({}, {"cp": 2}, {"tp": 2}, {"sp": 2, "decode": "shift", "shift_threshold": 8}, {"tp": 4}):
            words = "-".join(f"{key}-{value}" for key, value in layout.items())
            job = self.job_of(self.folder / "model", f"bits-{words}", reproducible="layout", **layout)
            said = self.run_job(job, layout.get("tp", 1) * layout.get("sp", 1) * layout.get("cp", 1))
            self.assertNotIn("widened", said)
            found.append((layout, self.logprobs(job)))
        for layout, logprobs in found:
            with self.subTest(layout=layout):
                np.testing.assert_array_equal(logprobs, found[0][1])

    def test_a_mixture_with_a_shared_expert_gives_the_answers_of_its_numbers(self) -> None:
        forms_of_mixtures = {"awq-128": KEPT["awq-128"], "int8": KEPT["int8"], "fp8-blocks": WIDENED["fp8-blocks"],
                             "nvfp4-modelopt": KEPT["nvfp4-modelopt"]}
        for name, (form, config, _) in forms_of_mixtures.items():
            widened = name in WIDENED
            plain = forms.write_model(self.folder / name, form, config, mixture=True)
            rounded = np.float16 if widened else np.float32
            forms.write_plain(self.folder / f"{name}-plain", plain, rounded, mixture=True)
            wanted_job = self.job_of(self.folder / f"{name}-plain", f"{name}-wanted")
            self.run_job(wanted_job, 1)
            wanted = self.logprobs(wanted_job)
            for layout in ({}, {"tp": 2}, {"sp": 2, "ep": 2}, {"tp": 2, "ep": 2}):
                with self.subTest(form=name, layout=layout):
                    words = "-".join(f"{key}-{value}" for key, value in layout.items())
                    job = self.job_of(self.folder / name, f"{name}-{words}", **layout)
                    said = self.run_job(job, layout.get("tp", 1) * layout.get("sp", 1))
                    self.assertEqual("widened" in said, widened)
                    self.expect_close(self.logprobs(job), wanted)

    def test_a_hybrid_gives_the_answers_of_its_numbers(self) -> None:
        """Also of its recurrent layers, but for what makes decays, which shares a module with the rest."""
        for name in ("nvfp4-modelopt", "nvfp4", "awq-32"):
            form, config, held = KEPT[name]
            forms.write_hybrid(self.folder / name, self.folder / f"{name}-plain", form, config)
            wanted_job = self.job_of(self.folder / f"{name}-plain", f"{name}-wanted")
            self.run_job(wanted_job, 1)
            wanted = self.logprobs(wanted_job)
            for layout in ({}, {"cp": 2}, {"tp": 2}, {"sp": 2}, {"tp": 2, "ep": 2}):
                with self.subTest(form=name, layout=layout):
                    words = "-".join(f"{key}-{value}" for key, value in layout.items())
                    job = self.job_of(self.folder / name, f"{name}-{words}", **layout)
                    ranks = layout.get("tp", 1) * layout.get("sp", 1) * layout.get("cp", 1)
                    said = self.run_job(job, ranks)
                    self.assertRegex(said, r"weights of recurrent a are stored as .* its products take numbers")
                    self.assertEqual(said.count("widened"), 1)
                    self.assertIn(held, self.report(job)["model"]["weights"])
                    self.expect_close(self.logprobs(job), wanted, 3e-4)

    def test_families_give_the_answers_of_their_numbers(self) -> None:
        """Also where a module has the rows of several matrices, or a matrix is made of others (kv_b of latents)."""
        rounds = FORMS_OF_FAMILIES if ALL_CASES else FORMS_OF_FAMILIES[:1]
        for first in range(len(rounds)):
            for index, family in enumerate(FAMILIES):
                name = FORMS_OF_FAMILIES[(first + index) % len(FORMS_OF_FAMILIES)]
                form, config, unit = OF_FAMILIES[name]
                folder = self.folder / f"{family}-{name}"
                plain = self.folder / f"{family}-{name}-plain"
                count = forms.write_family(GOLDENS / family, folder, plain, form, unit, config)
                self.assertGreater(count, 5)
                wanted_job = self.job_of(plain, f"{folder.name}-wanted")
                self.run_job(wanted_job, 1)
                wanted = self.logprobs(wanted_job)
                for layout in ({}, {"tp": 2}, {"sp": 2}):
                    with self.subTest(family=family, form=name, layout=layout):
                        job = self.job_of(folder, f"{folder.name}-{'-'.join(layout)}", **layout)
                        self.run_job(job, max([1, *layout.values()]))
                        self.expect_close(self.logprobs(job), wanted, 3e-4)

    def test_numbers_of_latents_that_their_type_cannot_hold_are_refused_by_row(self) -> None:
        form, config, unit = OF_FAMILIES["fp8-blocks"]

        def far(draw: np.random.Generator, out: int, inputs: int) -> Any:
            tensors, numbers = form(draw, out, inputs)
            if (out, inputs) == (144, 16):  # kv_b
                tensors["weight_scale_inv"] = tensors["weight_scale_inv"] * np.float32(1e9)
            return tensors, numbers

        forms.write_family(
            GOLDENS / "deepseek3-groups", self.folder / "model", self.folder / "plain", far, unit, config
        )
        job = self.write_job(
            random_requests(1, 20, 60, seed=92), "job", model={"path": str(self.folder / "model"), "dtype": "fp16"}
        )
        said = self.run_job(job, 1, expect=REFUSED)
        self.assertRegex(said, r"kv_b_proj' hold -?inf in row \d+, which fp16 cannot hold")

    def test_a_hybrid_gives_the_bits_of_one_rank_where_asked(self) -> None:
        form, config, unit = OF_FAMILIES["nvfp4"]
        forms.write_family(GOLDENS / "qwen35-tied", self.folder / "model", self.folder / "plain", form, unit, config)
        found = []
        for layout in ({}, {"cp": 2}, {"tp": 2}):
            job = self.job_of(self.folder / "model", f"bits-{'-'.join(layout)}", reproducible="layout", **layout)
            self.run_job(job, max([1, *layout.values()]))
            found.append(self.logprobs(job))
        for other in found[1:]:
            np.testing.assert_array_equal(other, found[0])

    def test_what_no_product_takes_is_widened_and_said(self) -> None:
        for name, (form, config, why) in WIDENED.items():
            with self.subTest(form=name):
                plain = forms.write_model(self.folder / name, form, config)
                forms.write_plain(self.folder / f"{name}-plain", plain, np.float16)
                wanted_job = self.job_of(self.folder / f"{name}-plain", f"{name}-wanted")
                self.run_job(wanted_job, 1)
                job = self.job_of(self.folder / name, f"{name}-alone")
                said = self.run_job(job, 1)
                self.assertRegex(said, rf"weights of q, k, .*down are stored as .* and widened: .*{why}")
                self.assertEqual(self.report(job)["model"]["weights"], "fp16")
                self.expect_close(self.logprobs(job), self.logprobs(wanted_job))

    def test_products_of_bf16_round_operands_alone(self) -> None:
        form, config, _ = KEPT["awq-32"]
        plain = forms.write_model(self.folder / "model", form, config)
        forms.write_plain(self.folder / "plain", plain)
        wanted_job = self.job_of(self.folder / "plain", "wanted")
        self.run_job(wanted_job, 1)
        job = self.job_of(self.folder / "model", "auto", compute="auto")
        self.run_job(job, 1)
        self.expect_close(self.logprobs(job), self.logprobs(wanted_job), 0.1)

    def test_modules_that_are_left_out_stay_numbers(self) -> None:
        form, config, _ = KEPT["awq-128"]
        config = {**config, "modules_to_not_convert": ["down_proj"]}
        plain = forms.write_model(self.folder / "model", form, config, left_out="down_proj")
        forms.write_plain(self.folder / "plain", plain)
        wanted_job = self.job_of(self.folder / "plain", "wanted")
        self.run_job(wanted_job, 1)
        job = self.job_of(self.folder / "model", "found")
        self.run_job(job, 1)
        self.expect_close(self.logprobs(job), self.logprobs(wanted_job))

    def test_broken_checkpoints_are_refused_by_tensor(self) -> None:
        def broken(name: str, change: str, words: str) -> None:
            with self.subTest(form=name, change=change):
                form, config, _ = {**KEPT, **WIDENED}[name]
                folder = self.folder / f"{name} {change}"

                def make(draw: np.random.Generator, out: int, inputs: int) -> Any:
                    tensors, numbers = form(draw, out, inputs)
                    if (out, inputs) == (forms.HIDDEN, forms.FFN):
                        what, end = change.split(" ")
                        if what == "without":
                            del tensors[end]
                        elif what == "short":
                            tensors[end] = tensors[end][:-1]
                        elif what == "zero":
                            tensors[end][:] = 0
                        elif what == "coded":
                            tensors[end].codes.reshape(-1)[3] = 0x7F
                        elif what == "typed":
                            tensors[end] = tensors[end].astype(np.int64)
                        else:
                            tensors[end].reshape(-1)[3] = {"far": 99, "moved": 1, "nan": np.nan}[what]
                    return tensors, numbers

                forms.write_model(folder, make, config)
                said = self.run_job(self.job_of(folder, "broken"), 1, expect=REFUSED)
                self.assertIn("model.safetensors" if "missing" not in words else folder.name, said)
                self.assertRegex(said, f"'model.layers.[01].mlp.down_proj.{change.split()[1]}' {words}")

        broken("gptq-128", "without g_idx", "is missing")
        broken("gptq-128", "without qzeros", "is missing")
        broken("gptq-128", "short scales", r"has shape \[3, 256\]")
        broken("gptq-128", "typed qweight", "is of type int64")
        broken("gptq-128", "moved g_idx", "holds 1 at element 3, but without desc_act")
        broken("gptq-ordered", "far g_idx", "holds 99 at element 3, but there are 8 groups")
        broken("awq-32", "short qzeros", r"has shape \[15, 32\]")
        broken("awq-128", "nan scales", "holds nan at element 3")
        broken("packed-zeros", "without weight_zero_point", "is missing")
        broken("int8", "short weight_scale", r"has shape \[255, 1\]")
        broken("nvfp4", "short weight_scale", r"has shape \[255, 32\]")
        broken("nvfp4", "zero weight_global_scale", "holds 0, which is no factor")
        broken("nvfp4", "coded weight_scale", "holds nan at element 3")

    def test_configurations_that_are_not_implemented_are_refused_before_work(self) -> None:
        form, config, _ = KEPT["gptq-128"]
        forms.write_model(self.folder / "model", form, config)
        for changed, words in (
            ({"bits": 3}, "quantization_config.bits is 3, and only 4 or 8 is implemented"),
            ({"group_size": 48}, "quantization_config.group_size is 48"),
            ({"lm_head": True}, "quantization_config.lm_head is true"),
            ({"quant_method": "bitsandbytes"}, "quantization_config.quant_method is \"bitsandbytes\""),
        ):
            with self.subTest(changed=changed):
                path = self.folder / "model" / "config.json"
                whole = json.loads(path.read_text())
                whole["quantization_config"] = {**config, **changed}
                path.write_text(json.dumps(whole))
                said = self.run_job(self.job_of(self.folder / "model", "refused"), 1, expect=REFUSED)
                self.assertIn(words, said)


if __name__ == "__main__":
    unittest.main()
