# SPDX-License-Identifier: Apache-2.0
"""Every legal mode of a grid through the whole program, against one rank; what a run reports of its mode."""

from __future__ import annotations

import itertools
import json
import subprocess
import unittest
from typing import Any

import h5py

from harness import DONE, MODEL, PROGRAM, Results, RunTest, random_requests

GENERATION: dict[str, Any] = {"max_new_tokens": 12, "ignore_eos": True, "logprobs": 2}
RANKS = 4


class ModeTest(RunTest):
    def results_of(self, name: str, ranks: int, policy: str, parallel: dict[str, Any]) -> Results:
        requests = random_requests(8, 1, 90, seed=71, every_second_turn=3)
        job = self.write_job(
            requests,
            name,
            generation=GENERATION,
            parallel=parallel,
            batch={"max_sequences": 4, "max_batch_tokens": 64, "policy": policy},
        )
        self.first_line = self.run_job(job, ranks)
        self.of_job = self.report(job)
        return self.results(job)

    def legal_modes(self) -> list[dict[str, Any]]:
        job = self.write_job([], "plan")
        found = subprocess.run(
            [PROGRAM, "plan", job, "--modes", "--ranks", str(RANKS), "--json"],
            capture_output=True,
            check=True,
            text=True,
        )
        return [mode for mode in json.loads(found.stdout)["modes"] if mode["legal"]]

    def test_every_legal_mode_answers_as_one_rank(self) -> None:
        wanted = self.results_of("alone", 1, "prefill_first", {})
        self.assertEqual(set(wanted["mode"]), {b"single"})
        modes = self.legal_modes()
        self.assertGreater(len(modes), 12)
        rings = itertools.cycle(("pass_kv", "pass_q", "auto"))
        policies = itertools.cycle(("chunked", "prefill_first"))
        for index, mode in enumerate(modes):
            parallel = {key: mode[key] for key in ("cp", "sp", "tp", "ep", "prefill", "decode")}
            if mode["cp"] > 1:
                parallel["ring"] = next(rings)
            if mode["decode"] == "shift":
                parallel["shift_threshold"] = 4 if index % 2 else "auto"
            with self.subTest(parallel=parallel):
                found = self.results_of(f"mode-{index}", RANKS, next(policies), parallel)
                self.assert_same_answers(found, wanted, wanted.rows(DONE))
                ring = parallel.get("ring")
                taken = ("/pass_kv", "/pass_q") if ring == "auto" else (f"/{ring}" if ring else "",)
                names = {f"{mode['prefill']}{each}+{mode['decode']}".encode() for each in taken}
                self.assertLessEqual(set(found["mode"]), names)
                grid = self.of_job["grid"]
                self.assertEqual([grid[key] for key in ("cp", "sp", "tp")],
                                 [mode[key] for key in ("cp", "sp", "tp")])
                patterns = {link["pattern"] for link in self.of_job["links"]}
                self.assertEqual("ring" in patterns, mode["cp"] > 1)
                # Measuring rates moves 20 MiB, which are not the run's.
                self.assertLess(sum(link["bytes"] for link in self.of_job["links"]), 8 << 20)
                threshold = self.of_job["modes"]["shift_threshold"]
                self.assertEqual(threshold is not None, mode["decode"] == "shift")

    def test_prompts_gather_weights_or_rows_by_their_length(self) -> None:
        wanted = self.results_of("alone", 1, "prefill_first", {})
        parallel = {"tp": 2, "prefill": "ulysses", "gather_threshold": 40}
        found = self.results_of("by-length", 2, "prefill_first", parallel)
        self.assert_same_answers(found, wanted, wanted.rows(DONE))
        self.assertEqual(set(found["mode"]), {b"sp_tp+tp", b"ulysses+tp"})
        self.assertIn("prefill ulysses from 40 new tokens, sp_tp below", self.first_line)
        self.assertEqual(self.of_job["modes"]["gather_threshold"], 40)

    def test_weights_are_cut_and_kept_once(self) -> None:
        self.results_of("whole", 1, "prefill_first", {})
        whole = self.of_job["modes"]["weight_bytes"]
        self.results_of("base", 4, "prefill_first", {"sp": 2, "tp": 2, "decode": "sp"})
        base = self.of_job["modes"]["weight_bytes"]
        self.results_of("shifted", 4, "prefill_first",
                        {"sp": 2, "tp": 2, "decode": "shift", "shift_threshold": 4})
        self.assertEqual(self.of_job["modes"]["weight_bytes"], base)
        self.assertGreater(base, whole / 2)  # norms are not cut
        self.assertLess(base, 0.55 * whole)


class ExpertsTest(RunTest):
    """Experts that are dealt out over SP × TP, through the whole program."""

    def test_dealt_experts_answer_as_one_rank(self) -> None:
        def results_of(name: str, ranks: int, parallel: dict[str, Any]) -> Results:
            self.job = self.write_job(
                random_requests(8, 1, 90, seed=73, every_second_turn=3),
                name,
                model={"path": str(MODEL.parent / "qwen3moe-raw-step2"), "compute": "fp32"},
                generation=GENERATION,
                parallel=parallel,
                batch={"max_sequences": 4, "max_batch_tokens": 64},
            )
            self.run_job(self.job, ranks)
            return self.results(self.job)

        wanted = results_of("alone", 1, {})
        grid = self.report(self.job)["grid"]
        self.assertEqual(grid, {"dp": 1, "cp": 1, "sp": 1, "tp": 1, "ep": 1})
        for number, parallel in enumerate((
            {"cp": 2, "sp": 2, "ep": 2},
            {"sp": 2, "tp": 2, "ep": 4, "decode": "shift", "shift_threshold": 4},
            {"cp": 2, "tp": 2, "ep": 2, "prefill": "sp_tp"},
            {"cp": "elastic", "tp": 2, "ep": 2},
        )):
            with self.subTest(parallel=parallel):
                found = results_of(f"dealt-{number}", RANKS, parallel)
                self.assert_same_answers(found, wanted, wanted.rows(DONE))
                self.assertEqual(self.report(self.job)["grid"]["ep"], parallel["ep"])


class ResumeTest(RunTest):
    def test_a_continued_run_keeps_what_it_measured(self) -> None:
        requests = random_requests(30, 20, 60, seed=72)
        job = self.write_job(
            requests,
            generation={"max_new_tokens": 60, "ignore_eos": True},
            parallel={"sp": 2, "decode": "shift"},
            batch={"max_sequences": 2},
        )
        launch = self.start(job, 2)
        while self.done(job) == 0:
            self.assertTrue(launch.runs_for(0.01), launch.words())
        launch.kill()
        def measured() -> str:
            with h5py.File(self.output(job) / "results.h5", "r", locking=False) as file:
                return file.attrs["measured"]

        before = measured()
        self.run_job(job, 2)
        self.assertEqual(measured(), before)
        self.assertEqual(
            self.report(job)["modes"]["shift_threshold"], json.loads(before)["shift_threshold"]
        )
        self.assertEqual(self.results(job).rows(DONE), list(range(30)))


if __name__ == "__main__":
    unittest.main()
