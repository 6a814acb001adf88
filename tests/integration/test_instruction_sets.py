# SPDX-License-Identifier: Apache-2.0
"""The bits of `reproducible: layout` where ranks have other vectors."""

from __future__ import annotations

import unittest
from pathlib import Path

from harness import ALL_DONE, SOURCE, RunTest, random_requests

# Norms, softmax, windows, latents, experts, and both kinds of recurrent layers.
FAMILIES = ("gemma3-windows", "deepseek3-groups", "gptoss-bf16", "qwen3next-delta", "nemotronh-blocks")


@unittest.skipUnless("avx512f" in Path("/proc/cpuinfo").read_text(), "this processor has no AVX-512")
class InstructionSetTest(RunTest):
    def test_avx2_and_avx512_give_the_same_bits(self) -> None:
        requests = random_requests(6, 20, 90, seed=98)
        for family in FAMILIES:
            with self.subTest(family=family):
                jobs = []
                for isa in ("avx2", "avx512"):
                    job = self.write_job(
                        requests,
                        f"{family}-{isa}",
                        model={"path": str(SOURCE / "tests" / "goldens" / family), "compute": "fp32"},
                        kv={"dtype": "fp32"},
                        reproducible="layout",
                        generation={"max_new_tokens": 6, "ignore_eos": True, "logprobs": 2, "prompt_logprobs": 1},
                    )
                    self.end(self.start(job, 1, environment={"PECIA_MAX_ISA": isa}), ALL_DONE)
                    jobs.append(job)
                peaks = [self.report(job)["peak"]["instructions"] for job in jobs]
                self.assertNotEqual(*peaks)
                self.assert_same_bits(*(self.results(job) for job in jobs))


if __name__ == "__main__":
    unittest.main()
