# SPDX-License-Identifier: Apache-2.0
"""Runs whose prompts are attended by levels of the ranks: the answers of one rank where nothing is dropped, whatever
fails on the way; what a run reports of its mode; and that a run goes on with the same settings alone."""

from __future__ import annotations

import os
import signal
import unittest
from pathlib import Path
from typing import Any

import numpy as np

from harness import DONE, REFUSED, VOCAB, Request, RunTest, wait_for_state

LEAST_ROWS = 128  # on each rank, of a chunk that is attended by levels
CSA: dict[str, Any] = {"sparse": "csa", "drop": 0.0}


def ragged_requests(count: int) -> list[Request]:
    """Prompts of one long turn, one short one, two long ones, and a long one after a short one."""
    draw = np.random.default_rng(91)
    requests = []
    for index in range(count):
        long, short = draw.integers(520, 900, size=2), draw.integers(3, 60, size=1)
        lengths = (long[:1], short, long, [*short, *long[:1]])[index % 4]
        turns = [draw.integers(3, VOCAB, size=length).tolist() for length in lengths]
        requests.append(Request(f"request-{index}", turns))
    return requests


class CsaTest(RunTest):
    def write(self, name: str, count: int = 8, **settings: Any) -> Path:
        generation = {
            "max_new_tokens": 6,
            "ignore_eos": True,
            "logprobs": 2,
            **settings.pop("generation", {}),
        }
        batch = {"max_batch_tokens": 640, **settings.pop("batch", {})}
        return self.write_job(
            ragged_requests(count), name, generation=generation, batch=batch, **settings
        )

    def test_answers_as_one_rank(self) -> None:
        alone = self.write("alone")
        self.run_job(alone, 1)
        wanted = self.results(alone)
        for ranks, parallel, attention in (
            (1, {}, {}),
            (2, {"cp": 2}, {}),
            (2, {"sp": 2}, {"pipeline": 4}),
            (3, {"cp": 3}, {"levels": 3, "pipeline": 2}),
            (3, {"sp": 3}, {"levels": 1}),
            (4, {"cp": 2, "sp": 2, "prefill": "usp"}, {"levels": 3}),
            (4, {"cp": 2, "tp": 2}, {}),
            (4, {"dp": 2, "sp": 2}, {"pipeline": 16}),
            (4, {"cp": 2, "tp": 2, "prefill": "sp_tp"}, {}),
            (2, {"tp": 2, "prefill": "tp"}, {}),
            (2, {"tp": 2, "prefill": "ulysses"}, {"pipeline": 1}),
            (4, {"tp": 4, "prefill": "sp_tp", "decode": "tp"}, {"levels": 3}),
            (4, {"dp": 2, "tp": 2}, {}),
        ):
            with self.subTest(ranks=ranks, parallel=parallel, attention=attention):
                job = self.write("csa", parallel=parallel, attention={**CSA, **attention})
                self.run_job(job, ranks, "--fresh")
                found = self.results(job)
                self.assertEqual(found.rows(DONE), wanted.rows(DONE))
                if attention.get("levels") != 1:  # which attends to each rank's part alone
                    self.assert_same_answers(found, wanted, wanted.rows(DONE))
                self.assert_modes(job, ranks)

    def assert_modes(self, job: Path, ranks: int) -> None:
        """Long prompts name levels, and short ones what took their place."""
        found = self.results(job)
        if ranks == 1:
            self.assertEqual(set(found["mode"]), {b"single"})
            return
        report = self.report(job)
        grid = report["grid"]
        self.assertEqual(grid["sp"], 1)
        self.assertEqual(report["modes"]["ring"], "levels")
        parts = grid["cp"] if grid["cp"] > 1 else grid["tp"]
        by_levels = [mode.endswith(b"+csa") for mode in found["mode"]]
        self.assertEqual(by_levels, [b"/levels+" in mode for mode in found["mode"]])
        # The chunk that comes last gives a prompt its mode.
        last = [tokens % 640 for tokens in found["prompt_tokens"]]
        for row, tokens in enumerate(last):
            if found["prompt_tokens"][row] < 640:
                self.assertEqual(by_levels[row], tokens >= LEAST_ROWS * parts, f"row {row}")
        self.assertIn(True, by_levels)
        self.assertIn(False, by_levels)

    def test_drafts_change_no_text(self) -> None:
        alone = self.write("alone", generation={"max_new_tokens": 40})
        self.run_job(alone, 1)
        wanted = self.results(alone)
        for spoiled in (False, True):
            if spoiled:
                os.environ["PECIA_SPOIL_DRAFTS"] = "4"
                self.addCleanup(os.environ.pop, "PECIA_SPOIL_DRAFTS", None)
            for ranks, parallel in (
                (2, {"cp": 2}),
                (3, {"cp": 3}),
                (2, {"tp": 2, "prefill": "tp"}),
                (4, {"cp": 2, "tp": 2}),
            ):
                with self.subTest(parallel=parallel, spoiled=spoiled):
                    job = self.write("drafts", parallel=parallel, attention=CSA,
                                     generation={"max_new_tokens": 40, "drafts": 6})
                    self.run_job(job, ranks, "--fresh")
                    found = self.results(job)
                    self.assert_same_answers(found, wanted, wanted.rows(DONE))
                    self.assertGreater(sum(found["draft_accepted"]), 30)

    def test_a_share_is_dropped(self) -> None:
        # A model of two layers, the first and the last, drops nothing; with nested, near keys count again.
        answers = []
        for name, attention in (
            ("disjoint", {"drop": 0.5}),
            ("nested", {"drop": 0.5, "geometry": "nested"}),
        ):
            job = self.write(name, parallel={"cp": 2}, attention={"sparse": "csa", **attention})
            self.run_job(job, 2)
            self.assertEqual(len(self.results(job).rows(DONE)), len(self.results(job)["state"]))
            answers.append(self.results(job)["token_logprob"].tolist())
            self.run_job(job, 2, "--fresh")
            self.assertEqual(self.results(job)["token_logprob"].tolist(), answers[-1])
        self.assertNotEqual(answers[0], answers[1])

    def test_tensor_parallel_ranks_have_no_use_for_micro_partitions(self) -> None:
        job = self.write("job", 1, parallel={"tp": 2}, attention={**CSA, "pipeline": 4})
        words = self.run_job(job, 2, expect=REFUSED)
        self.assertIn("attention.pipeline: 4 needs cp or sp above 1, but the grid is TP 2", words)

    def test_what_is_done_survives_and_the_rest_goes_on_with_other_ranks(self) -> None:
        alone = self.write("alone", 20, generation={"max_new_tokens": 60})
        self.run_job(alone, 1)
        wanted = self.results(alone)
        for how in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(how=how.name):
                job = self.write(how.name, 20, generation={"max_new_tokens": 60},
                                 parallel={"cp": "auto"}, attention=CSA, batch={"max_sequences": 3})
                launch = self.start(job, 3)
                first = self.results_row_of_first(job)
                wait_for_state(self.output(job) / "results.h5", first, DONE)
                launch.ranks()
                launch.signal_ranks(how, slice(1, 2) if how == signal.SIGKILL else slice(None))
                launch.wait()
                before = self.results(job)
                self.assertLess(len(before.rows(DONE)), len(wanted["state"]))
                for ranks in (2, 4):
                    self.run_job(job, ranks)
                    found = self.results(job)
                    for row in before.rows(DONE):
                        self.assertEqual(found.row_bytes(row), before.row_bytes(row))
                    self.assert_same_answers(found, wanted, wanted.rows(DONE))

    def results_row_of_first(self, job: Path) -> int:
        """The longest request begins first."""
        requests = ragged_requests(20)
        longest = max(requests, key=lambda request: sum(map(len, request.turns)))
        return sum(len(request.turns) for request in requests[: requests.index(longest)])

    def test_goes_on_with_the_same_attention_alone(self) -> None:
        job = self.write("job", 3, attention={**CSA, "levels": 2}, parallel={"cp": 2})
        self.run_job(job, 2)
        before = (self.output(job) / "results.h5").read_bytes()
        for option, key in (
            ("attention.drop=0.25", "attention/drop: .*0.0 there, .*0.25 now"),
            ("attention.geometry=nested", "attention/geometry: .*disjoint.* there, .*nested.* now"),
            ("attention.levels=auto", "attention/levels: .*2 there, .*auto.* now"),
        ):
            with self.subTest(option):
                words = self.run_job(job, 2, "--set", option, expect=REFUSED)
                self.assertRegex(words, key)
                self.assertIn("--fresh", words)
        dense = self.write("job", 3, parallel={"cp": 2})
        words = self.run_job(dense, 2, expect=REFUSED)
        self.assertRegex(words, "attention/sparse: .*csa.* there, .* now")
        self.assertEqual((self.output(job) / "results.h5").read_bytes(), before)


if __name__ == "__main__":
    unittest.main()
