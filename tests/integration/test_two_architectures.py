# SPDX-License-Identifier: Apache-2.0
"""Runs that begin on x86-64 and end on aarch64, which qemu plays, and the other way round."""

from __future__ import annotations

import os
import signal
import subprocess
import unittest
from functools import partial
from pathlib import Path
from typing import Any

from harness import (
    ALL_DONE,
    DONE,
    DRAINED,
    EXECUTABLES,
    PROGRAM,
    SOURCE,
    Request,
    Results,
    RunTest,
    covering,
    random_requests,
    wait_for,
)

NATIVE = Path(os.environ["PECIA_NATIVE_PROGRAM"])
BOTH = {"x86-64": NATIVE, "aarch64": PROGRAM}
EXECUTABLES.add(str(NATIVE.resolve()))

EMULATED_LIMIT_S = 240.0

# What two ranks do.
LAYOUTS: tuple[dict[str, Any], ...] = (
    {"cp": 2, "ring": "pass_kv", "decode": "pass_q"},
    {"cp": 2, "ring": "pass_q", "decode": "broadcast_q"},
    {"cp": "elastic"},
    {"sp": 2, "decode": "shift", "shift_threshold": 2},
    {"tp": 2},
    {"pp": 2},
)
MIXTURE = str(SOURCE / "tests/goldens/gptoss-mxfp4")
# Two families, one of them with windows, sinks and experts of MXFP4. By qemu, runs with products of bf16 take minutes.
MODELS: tuple[dict[str, Any], ...] = (
    {"model": {"compute": "fp32"}, "batch": {"policy": "chunked"}},
    {"model": {"path": MIXTURE, "compute": "fp32"}, "kv": {"dtype": "fp32"}},
)


def requests() -> list[Request]:
    """One short answer, which tells that the run is under way, and longer ones."""
    made = random_requests(4, 10, 40, seed=21)
    for index, request in enumerate(made):
        request.max_new_tokens = [3 if index == 0 else -1]
    return made


def generation(max_new_tokens: int) -> dict[str, Any]:
    return {"max_new_tokens": max_new_tokens, "ignore_eos": True, "logprobs": 1}


@unittest.skipUnless(NATIVE.exists(), f"there is no {NATIVE}")
class TwoArchitecturesTest(RunTest):
    def write_job(self, *words: Any, **sections: Any) -> Path:
        return super().write_job(*words, report={"peak": "off"}, **sections)

    def on(self, machine: str, job: Path, ranks: int, *options: str, expect: int = 0) -> str:
        self.program = BOTH[machine]  # type: ignore[misc]
        launch = self.start(job, ranks, *options, together=expect == DRAINED)
        launch.wait(EMULATED_LIMIT_S)
        return self.end(launch, expect)

    def wait_for_a_row(self, job: Path) -> None:
        wait_for("a row", lambda: self.done(job) > 0, EMULATED_LIMIT_S)

    def whole(self, machine: str, **sections: Any) -> Results:
        """The answers of 40 tokens, from one run on this machine."""

        def compute() -> Results:
            job = self.write_job(requests(), machine, generation=generation(40), **sections)
            self.on(machine, job, 1)
            return self.results(job)

        return self.once((machine, str(sections)), compute)

    def test_answers_are_the_same(self) -> None:
        found = self.whole("aarch64", model={"compute": "fp32"})
        self.assert_same_answers(found, self.whole("x86-64", model={"compute": "fp32"}), range(4))

    def test_instructions_are_named_and_may_be_fewer(self) -> None:
        job = self.write_job(requests()[:1], generation=generation(3), model={"compute": "fp32"})
        for environment, isa in (({}, "neon_bf16"), ({"PECIA_MAX_ISA": "neon"}, "neon")):
            words = self.end(self.start(job, 0, "--fresh", environment=environment), ALL_DONE)
            self.assertIn(f"1 rank of 1 thread ({isa})", words)
            self.assertEqual(self.report(job)["machine"]["isa"], isa)

    def test_layouts_have_the_same_bits(self) -> None:
        """On one instruction set; the other has another order of sums over lanes."""
        exact: dict[str, Any] = {"reproducible": "layout", "model": {"compute": "fp32"}}
        alone = self.whole("aarch64", **exact)
        job = self.write_job(requests(), "two", generation=generation(40), **exact)
        self.on("aarch64", job, 2)
        self.assert_same_bits(self.results(job), alone)
        self.assert_same_answers(alone, self.whole("x86-64", **exact), range(4))

    def test_products_of_bf16_have_the_same_bits(self) -> None:
        """As above, of MXFP4 and of bf16."""
        exact: dict[str, Any] = {"reproducible": "layout", "model": {"path": MIXTURE, "compute": "bf16"}}
        alone = self.whole("aarch64", **exact)
        job = self.write_job(requests(), "two", generation=generation(40), parallel={"cp": 2}, **exact)
        self.on("aarch64", job, 2)
        self.assert_same_bits(self.results(job), alone)

    def in_a_mode(self, machine: str, ranks: int, followup: str, **sections: Any) -> Results:
        sections["batch"] = {"max_sequences": 3, "max_batch_tokens": 32, **sections.get("batch", {})}
        prompts = random_requests(5, 1, 60, seed=17, every_second_turn=3)
        job = self.write_job(prompts, "mode", followup, generation=generation(6), **sections)
        self.on(machine, job, ranks, "--fresh")
        found = self.results(job)
        self.assertEqual(len(found.rows(DONE)), len(found["state"]))
        return found

    def test_modes_answer_as_one_rank_on_x86_64(self) -> None:
        for layout, which, followup in covering(LAYOUTS, range(len(MODELS)), ("chain", "fork")):
            with self.subTest(layout=layout, model=which, followup=followup):
                alone = partial(self.in_a_mode, "x86-64", 1, followup, **MODELS[which])
                wanted = self.once((which, followup), alone)
                found = self.in_a_mode("aarch64", 2, followup, parallel=layout, **MODELS[which])
                self.assert_same_answers(found, wanted, wanted.rows(DONE))

    def test_a_run_that_was_killed_goes_on_on_the_other(self) -> None:
        wanted = self.whole("x86-64", model={"compute": "fp32"})
        for first, then in (("x86-64", "aarch64"), ("aarch64", "x86-64"), ("aarch64", "aarch64")):
            with self.subTest(first=first, then=then):
                job = self.write_job(
                    requests(),
                    f"{first}-{then}",
                    model={"compute": "fp32"},
                    generation=generation(3000),
                )
                self.program = BOTH[first]  # type: ignore[misc]
                launch = self.start(job, 2)
                self.wait_for_a_row(job)
                launch.kill()
                self.assertGreater(len(self.results(job).rows(DONE)), 0)
                self.on(then, job, 2, "--set", "generation.max_new_tokens=40")
                self.assert_same_answers(self.results(job), wanted, range(4))
                words = subprocess.run(
                    [BOTH[first], "inspect", self.output(job)], capture_output=True, text=True
                ).stdout
                self.assertIn("4 done", words)

    def test_saved_keys_are_read_by_the_other(self) -> None:
        """A stop in the middle of a long prompt keeps what was read of it."""
        short, long = random_requests(2, 20, 40, seed=5)
        long.turns = [(long.turns[0] * 400)[:4000]]
        sections: dict[str, Any] = {
            "model": {"rope_scaling": {"type": "linear", "factor": 8}, "compute": "fp32"},
            "generation": generation(6),
            "batch": {"max_sequences": 1, "order": "fcfs", "max_batch_tokens": 4},
            "limits": {"grace": "40s"},
        }
        large = ("--set", "batch.max_batch_tokens=1024")
        job = self.write_job([short, long], "whole", **sections)
        self.on("x86-64", job, 1, *large)
        wanted = self.results(job)
        for first, then in (("x86-64", "aarch64"), ("aarch64", "x86-64")):
            with self.subTest(first=first, then=then):
                job = self.write_job([short, long], f"{first}-{then}", **sections)
                self.program = BOTH[first]  # type: ignore[misc]
                launch = self.start(job, 1, together=True)
                self.wait_for_a_row(job)
                launch.ranks()
                self.compute_for(launch, 0.1)
                launch.signal_ranks(signal.SIGTERM)
                launch.wait(EMULATED_LIMIT_S)
                self.assertIn("kept the keys and values of 1 request", self.end(launch, DRAINED))
                words = self.on(then, job, 1, *large)
                self.assertRegex(words, r"· restored [\d.]+k? tokens of 1 request ·")
                self.assert_same_answers(self.results(job), wanted, (0, 1))


if __name__ == "__main__":
    unittest.main()
