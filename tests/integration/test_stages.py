# SPDX-License-Identifier: Apache-2.0
"""Stages of layers through the whole program: the same answers, the same bits, and ranks that die."""

from __future__ import annotations

import os
import signal
import unittest
from pathlib import Path
from typing import Any

from harness import (
    DONE,
    DRAINED,
    OPEN,
    REFUSED,
    SOURCE,
    Results,
    RunTest,
    random_requests,
    wait_for,
)

LLAMA4 = SOURCE / "tests" / "goldens" / "llama4-chunks"  # four layers
LENGTH = 8_000  # tokens of a prompt that takes seconds in small passes
# Products of bf16 round hidden states, and more so where they travel, so near ties would differ.
EXACT = {"dtype": "fp32", "compute": "fp32"}
GENERATION: dict[str, Any] = {"max_new_tokens": 12, "ignore_eos": True, "logprobs": 2}


class StageTest(RunTest):
    def new_job(self, name: str, count: int = 8, model: Path = LLAMA4, **sections: Any) -> Path:
        return self.write_job(
            random_requests(count, 1, 90, seed=53, every_second_turn=3),
            name,
            model={"path": str(model), **EXACT},
            **{
                "generation": GENERATION,
                "batch": {"max_sequences": 4, "max_batch_tokens": 64},
                **sections,
            },
        )

    def results_of(self, name: str, ranks: int, **sections: Any) -> Results:
        job = self.new_job(name, **sections)
        self.words = self.run_job(job, ranks)
        self.of_job = self.report(job)
        return self.results(job)

    def test_answers_are_those_of_one_rank(self) -> None:
        wanted = self.results_of("alone", 1)
        for pp, ranks, parallel in (
            (2, 2, {}),
            (3, 3, {}),
            (4, 4, {}),
            (2, 4, {"cp": 2}),
            (2, 4, {"tp": 2}),
            (2, 4, {"sp": 2}),
            (2, 4, {"dp": 2}),
        ):
            for policy in ("prefill_first", "chunked"):
                with self.subTest(pp=pp, ranks=ranks, parallel=parallel, policy=policy):
                    found = self.results_of(
                        f"stages-{pp}-{ranks}-{'-'.join(parallel)}-{policy}",
                        ranks,
                        parallel={"pp": pp, **parallel},
                        batch={"max_sequences": 4, "max_batch_tokens": 64, "policy": policy},
                    )
                    self.assert_same_answers(found, wanted, wanted.rows(DONE))
                    self.assertEqual(found.rows(DONE), wanted.rows(DONE))
                    self.assertEqual(self.of_job["grid"]["pp"], pp)
                    self.assertIn(f"PP {pp}", self.words)
                    sent = {link["pattern"]: link["bytes"] for link in self.of_job["links"]}
                    self.assertGreater(sent["stages"], 0)

    def test_bits_do_not_depend_on_stages(self) -> None:
        layout = {"reproducible": "layout"}
        wanted = self.results_of("bits-1", 1, **layout)
        self.assertEqual(len(wanted.rows(DONE)), len(wanted["state"]))
        for pp in (2, 4):
            found = self.results_of(f"bits-{pp}", pp, parallel={"pp": pp}, **layout)
            for row in wanted.rows(DONE):
                for name in ("tokens", "token_logprob", "top_tokens", "top_logprobs"):
                    self.assertEqual(
                        found.slots(row, name).tobytes(),
                        wanted.slots(row, name).tobytes(),
                        f"{name} of row {row} with pp {pp}",
                    )

    def test_a_killed_rank_is_named_with_its_stage(self) -> None:
        generation = {"max_new_tokens": 300, "ignore_eos": True}
        for victim in (0, 2):
            with self.subTest(victim=victim):
                job = self.new_job(
                    f"killed-{victim}", 60, parallel={"pp": 3}, generation=generation
                )
                launch = self.start(job, 3)
                wait_for("all ranks", lambda launch=launch: len(launch.ranks()) == 3)
                wait_for("a row", lambda job=job: self.done(job) >= 1)
                launch.signal_ranks(signal.SIGKILL, slice(victim, victim + 1))
                self.assertNotEqual(launch.wait(), 0)
                wait_for("all processes to end", lambda launch=launch: not launch.processes(), 10)
                self.assertRegex(
                    launch.words(),
                    rf"pecia: rank {victim} \(host {os.uname().nodename}, stage {victim}\) has died",
                )
                self.assertGreater(len(self.results(job).rows(OPEN)), 0, "it was killed too late")

    def test_a_run_that_was_stopped_goes_on_with_other_stages(self) -> None:
        generation = {"max_new_tokens": 200, "ignore_eos": True}
        wanted = self.results_of("whole", 1, count=40, generation=generation)
        job = self.new_job("stopped", 40, generation=generation, parallel={"pp": 2})
        launch = self.start(job, 2, together=True)
        wait_for("all ranks", lambda: len(launch.ranks()) == 2)
        wait_for("a row", lambda: self.done(job) >= 1)
        launch.signal_ranks(signal.SIGTERM)
        self.end(launch, DRAINED)
        self.assertLess(self.done(job), len(wanted["state"]))
        self.run_job(job, 4, "--set", "parallel.pp=4")
        self.assert_same_answers(self.results(job), wanted, wanted.rows(DONE))

    def test_what_was_read_is_kept_for_other_stages(self) -> None:
        sections: dict[str, Any] = {
            "model": {"rope_scaling": {"type": "linear", "factor": 8}},
            "generation": {"max_new_tokens": 6, "ignore_eos": True, "logprobs": 1},
            "batch": {"max_sequences": 1, "order": "fcfs", "max_batch_tokens": 4},
            "limits": {"grace": "40s"},
        }
        large = ("--set", "batch.max_batch_tokens=1024")
        short, long = random_requests(2, 20, 40, seed=5)
        long.turns = [(long.turns[0] * LENGTH)[:LENGTH]]
        whole = self.write_job([short, long], "whole", **sections)
        self.run_job(whole, 1, *large)
        wanted = self.results(whole)
        for before, after in ((2, 1), (1, 2)):
            with self.subTest(before=before, after=after):
                parallel = {"cp": 1, "pp": before}
                job = self.write_job([short, long], f"kept-{before}", parallel=parallel, **sections)
                words = self.stop_in_the_prompt(job, before)
                self.assertRegex(words, r"kept the keys and values of 1 request")
                kept = self.report(job)["kv"]["kept_tokens"]
                words = self.run_job(job, after, "--set", f"parallel.pp={after}", *large)
                self.assertRegex(words, r"restored [\d.]+k? tokens of 1 request")
                self.assertIn(self.report(job)["kv"]["restored_tokens"], range(kept - 7, kept + 1))
                self.assert_same_answers(self.results(job), wanted, wanted.rows(DONE))

    def test_what_is_not_there_is_refused_by_name(self) -> None:
        for parallel, batch, words in (
            ({"pp": 2, "cp": "elastic"}, {}, "parallel.pp above 1 with cp: elastic"),
            ({"pp": 2, "cp": 2, "phases": "apart"}, {}, "phases: apart"),
            ({"pp": 2}, {"objective": "ttft"}, "batch.objective: ttft"),
            ({"pp": 5}, {}, "use pp 4 or less"),
            ({"pp": 3, "cp": 2}, {}, "parallel.dp 1 × pp 3 × cp 2"),
        ):
            with self.subTest(parallel=parallel):
                job = self.new_job("refused", parallel=parallel, batch=batch)
                ranks = 5 if parallel["pp"] == 5 else 4
                self.assertIn(words, self.run_job(job, ranks, "--fresh", expect=REFUSED))


if __name__ == "__main__":
    unittest.main()
