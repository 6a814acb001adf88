# SPDX-License-Identifier: Apache-2.0
"""Runs of models with recurrent layers, whose states go from rank to rank and are kept nowhere."""

from __future__ import annotations

import signal
import unittest
from functools import partial
from pathlib import Path
from typing import Any

from harness import DONE, DRAINED, REFUSED, SOURCE, RunTest, random_requests, wait_for

HYBRIDS = ("qwen3next-delta", "qwen35-text-part", "granitehybrid-experts", "nemotronh-blocks")
SECTIONS: dict[str, Any] = {
    "generation": {"max_new_tokens": 8, "ignore_eos": True, "logprobs": 1},
    "batch": {"max_sequences": 4, "max_batch_tokens": 32},
}


class HybridTest(RunTest):
    def job(self, hybrid: str, name: str = "job", followup: str = "chain", **sections: Any) -> Path:
        turns = 1 if followup == "fork" else 3
        requests = random_requests(9, 5, 70, seed=4, every_second_turn=turns)
        model = {"path": str(SOURCE / "tests" / "goldens" / hybrid)}
        return self.write_job(requests, f"{hybrid}-{name}", followup, model=model, **{**SECTIONS, **sections})

    def assert_same_bits(self, job: Path, reference: Path) -> None:
        found, expected = self.results(job), self.results(reference)
        rows = expected.rows(DONE)
        self.assertEqual(found.rows(DONE), rows)
        for row in rows:
            self.assertEqual(found.tokens(row), expected.tokens(row))
            self.assertEqual(
                found.slots(row, "token_logprob").tobytes(), expected.slots(row, "token_logprob").tobytes()
            )

    def test_bits_depend_neither_on_ranks_nor_on_the_batch(self) -> None:
        for hybrid in HYBRIDS:
            for followup in ("chain", "fork"):
                alone = self.job(hybrid, f"alone-{followup}", followup, reproducible="layout")
                self.run_job(alone, 1)
                for ranks, parallel, batch in (
                    (2, {"cp": 2}, {"max_sequences": 4, "max_batch_tokens": 32}),
                    (2, {"sp": 2}, {"max_sequences": 9, "max_batch_tokens": 32}),
                    (4, {"cp": 2, "tp": 2}, {"max_sequences": 2, "max_batch_tokens": 32}),
                ):
                    with self.subTest(hybrid=hybrid, followup=followup, parallel=parallel):
                        job = self.job(
                            hybrid,
                            f"{followup}-{ranks}",
                            followup,
                            reproducible="layout",
                            parallel=parallel,
                            batch=batch,
                        )
                        self.run_job(job, ranks, "--fresh")
                        self.assert_same_bits(job, alone)

    def test_a_stopped_and_a_killed_run_go_on_on_other_ranks(self) -> None:
        long = {"generation": {**SECTIONS["generation"], "max_new_tokens": 300}, "reproducible": "layout"}
        alone = self.job(HYBRIDS[0], "alone", **long)
        self.run_job(alone, 1)
        job = self.job(HYBRIDS[0], "stopped", **long)
        for number in (signal.SIGTERM, signal.SIGKILL):
            done = self.done(job)
            launch = self.start(job, 2, together=True)
            wait_for("an answer", partial(lambda done: self.done(job) > done, done))
            launch.ranks()
            if number == signal.SIGKILL:
                launch.kill()
                continue
            launch.signal_ranks(number)
            words = self.end(launch, DRAINED)
            self.assertIn("states of recurrent layers are not saved", words)
        self.run_job(job, 4)
        # What an earlier start has answered is read with the prompt.
        self.assert_same_answers(self.results(job), self.results(alone), self.results(alone).rows(DONE))

    def test_what_is_not_there_is_refused_by_name(self) -> None:
        for key, sections in (
            ("kv.admission", {"kv": {"admission": "demand"}}),
            ("parallel.cp", {"parallel": {"cp": "elastic"}}),
            ("attention.sparse", {"attention": {"sparse": "csa"}}),
            ("kv.save", {"kv": {"save": "kept"}}),
        ):
            with self.subTest(key=key):
                words = self.run_job(self.job(HYBRIDS[0], **sections), 2, expect=REFUSED)
                self.assertIn(key, words)
                self.assertIn("recurrent layers", words)


if __name__ == "__main__":
    unittest.main()
