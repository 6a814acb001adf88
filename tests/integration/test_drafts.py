# SPDX-License-Identifier: Apache-2.0
"""Runs whose answers are drafted from texts: the text is that of one token at a time."""

from __future__ import annotations

import json
import os
import signal
import unittest
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from harness import (
    DONE,
    DRAINED,
    SOURCE,
    Request,
    Results,
    RunTest,
    random_requests,
    wait_for,
)
from test_demand import has_done

COUNT = 12
GENERATION: dict[str, Any] = {"max_new_tokens": 60, "ignore_eos": True, "logprobs": 1}
# How answers are sampled; a few likely tokens often come as they were drafted.
SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {},
    "few": {"temperature": 0.7, "top_k": 3, "seed": 5},
    "long": {"temperature": 0.7, "top_k": 3, "seed": 5, "max_new_tokens": 400},
    "penalties": {"temperature": 0.3, "repetition_penalty": 1.1, "frequency_penalty": 0.2, "seed": 6},
}


def requests() -> list[Request]:
    """Every prompt twice, so that the first answer helps with the second; some have another turn."""
    half = random_requests(COUNT // 2, 20, 60, seed=9)
    return half + [Request(f"again-{number}", of.turns) for number, of in enumerate(half)]


def kill_and_stop(
    test: RunTest,
    job: Path,
    ranks: int,
    after: Sequence[tuple[signal.Signals, int]] = ((signal.SIGKILL, 2), (signal.SIGTERM, 5)),
) -> None:
    """Ends the job's starts one after the other, each by a signal once this number of answers is done."""
    for number, enough in after:
        launch = test.start(job, ranks, together=True)
        wait_for(f"{enough} answers", partial(has_done, test, job, enough))
        launch.ranks()
        launch.signal_ranks(number)
        if number == signal.SIGTERM:
            test.end(launch, DRAINED)
        else:
            launch.kill()


class DraftsTest(RunTest):
    def job(self, name: str, drafts: Any, generation: dict[str, Any], **sections: Any) -> Path:
        return self.write_job(
            requests(),
            name,
            **{
                "generation": {**GENERATION, **generation, "drafts": drafts},
                "batch": {"max_sequences": 4, "max_batch_tokens": 64},
                **sections,
            },
        )

    def without(self, sampling: str, **sections: Any) -> Results:
        def alone() -> Results:
            job = self.job("off", "off", SAMPLING[sampling], **sections)
            self.run_job(job, 1, "--fresh")
            self.assertIsNone(self.report(job)["drafts"])
            return self.results(job)

        return self.once((sampling, *sections), alone)

    def spoil(self) -> None:
        self.set_variable("PECIA_SPOIL_DRAFTS", "4")

    def set_variable(self, name: str, value: str) -> None:
        os.environ[name] = value
        self.addCleanup(os.environ.pop, name, None)

    def test_the_text_is_the_same(self) -> None:
        for spoiled in (False, True):
            if spoiled:
                self.spoil()
            for sampling, ranks in (("greedy", 1), ("few", 2), ("penalties", 3)):
                with self.subTest(sampling=sampling, spoiled=spoiled):
                    job = self.job("drafts", 6, SAMPLING[sampling])
                    self.run_job(job, ranks, "--fresh")
                    found = self.results(job)
                    self.assert_same_answers(found, self.without(sampling), range(COUNT))
                    drafts = self.report(job)["drafts"]
                    self.assertEqual(drafts["accepted"], sum(found["draft_accepted"]))
                    self.assertGreater(drafts["accepted"], 30 if sampling == "greedy" else 0)
                    self.assertGreaterEqual(drafts["tried"], drafts["accepted"])

    def test_kills_and_stops_lose_nothing(self) -> None:
        self.spoil()
        wanted = self.without("few", reproducible="layout")
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                job = self.job(f"killed-{ranks}", 6, SAMPLING["few"], reproducible="layout")
                kill_and_stop(self, job, ranks)
                self.run_job(job, ranks, "--set", "generation.drafts=off")
                found = self.results(job)
                self.assertEqual(found.rows(DONE), list(range(COUNT)))
                self.assert_same_answers(found, wanted, range(COUNT))

    def test_teams_answer_with_the_same_text(self) -> None:
        for spoiled in (False, True):
            if spoiled:
                self.spoil()
                self.set_variable("PECIA_FORCE_YIELDS", "7")
            for sampling, ranks, parallel, policy in (
                ("greedy", 2, {"cp": "elastic"}, "prefill_first"),
                ("few", 3, {"cp": "elastic", "scheduler": "loongserve"}, "prefill_first"),
                ("penalties", 4, {"cp": "elastic", "tp": 2}, "chunked"),
                ("greedy", 4, {"cp": "elastic", "dp": 2}, "prefill_first"),
                ("few", 3, {"cp": "elastic", "phases": "apart"}, "prefill_first"),
                ("penalties", 2, {"phases": "apart"}, "prefill_first"),
                ("few", 4, {"cp": 2, "tp": 2, "phases": "apart"}, "prefill_first"),
            ):
                with self.subTest(parallel=parallel, spoiled=spoiled):
                    batch = {"max_sequences": 4, "max_batch_tokens": 64, "policy": policy}
                    job = self.job("teams", 6, SAMPLING[sampling], parallel=parallel, batch=batch)
                    self.run_job(job, ranks, "--fresh")
                    found = self.results(job)
                    self.assert_same_answers(found, self.without(sampling), range(COUNT))
                    drafts = self.report(job)["drafts"]
                    self.assertEqual(drafts["accepted"], sum(found["draft_accepted"]))
                    self.assertGreater(drafts["accepted"], 30 if sampling == "greedy" else 0)
                    decoded = sum(of["decode_tokens"] for of in self.report(job)["elastic"]["degrees"])
                    answered = sum(len(found.tokens(row)) for row in found.rows(DONE))
                    self.assertEqual(decoded, answered - COUNT, "prefill gives the first tokens")

    def test_teams_draft_where_it_pays(self) -> None:
        for parallel in ({"cp": "elastic"}, {"cp": "elastic", "phases": "apart"}):
            with self.subTest(parallel=parallel):
                batch = {"max_sequences": 2, "max_batch_tokens": 64}
                job = self.job("auto", "auto", SAMPLING["long"], parallel=parallel, batch=batch)
                self.run_job(job, 2, "--fresh")
                self.assert_same_answers(self.results(job), self.without("long"), range(COUNT))
                self.assertGreater(self.report(job)["drafts"]["tried"], 0)

    def test_teams_lose_nothing_when_they_are_killed_or_stopped(self) -> None:
        self.spoil()
        self.set_variable("PECIA_FORCE_YIELDS", "7")
        wanted = self.without("long")
        # A few at a time, so that some are left when the second start is told to stop.
        sections: dict[str, Any] = {"batch": {"max_sequences": 2, "max_batch_tokens": 64}, "kv": {"save": "auto"}}
        for number, parallel in enumerate(({"cp": "elastic"}, {"phases": "apart"})):
            with self.subTest(parallel=parallel):
                job = self.job(f"killed-teams-{number}", 6, SAMPLING["long"], parallel=parallel, **sections)
                kill_and_stop(self, job, 3)
                kept = self.report(job)["kv"]["kept_requests"]
                self.run_job(job, 3 - number)
                self.assertEqual(self.report(job)["kv"]["restored_requests"], kept)
                found = self.results(job)
                self.assertEqual(found.rows(DONE), list(range(COUNT)))
                self.assert_same_answers(found, wanted, range(COUNT))


HYBRIDS = ("qwen3next-delta", "qwen35moe-stacked", "granitehybrid-experts", "nemotronh-blocks")
DENSE = "qwen35-text-part"  # for long answers, as in test_hybrids


class DraftsOfStatesTest(RunTest):
    """Recurrent layers: the state goes back to before a pass whose drafted tokens were wrong."""

    # As in test_hybrids: states carry the rounding of all tokens before.
    logprob_tolerance: ClassVar[float] = 1.2e-3

    def setUp(self) -> None:
        super().setUp()
        os.environ["PECIA_SPOIL_DRAFTS"] = "7"
        self.addCleanup(os.environ.pop, "PECIA_SPOIL_DRAFTS", None)

    def job(self, hybrid: str, name: str, followup: str, drafts: Any, **sections: Any) -> Path:
        several = random_requests(4, 10, 40, seed=9, every_second_turn=3)
        generation = {"max_new_tokens": 24, "ignore_eos": True, "logprobs": 1, "drafts": drafts}
        return self.write_job(
            [*several, *(Request(f"again-{number}", of.turns) for number, of in enumerate(several))],
            f"{hybrid}-{name}",
            followup,
            **{
                "model": {"path": str(SOURCE / "tests" / "goldens" / hybrid)},
                "generation": generation,
                "batch": {"max_sequences": 4, "max_batch_tokens": 48},
                "reproducible": "layout",
                **sections,
            },
        )

    def without(self, hybrid: str, followup: str) -> Results:
        def alone() -> Results:
            job = self.job(hybrid, f"off-{followup}", followup, "off")
            self.run_job(job, 1)
            return self.results(job)

        return self.once((hybrid, followup), alone)

    def test_bits_are_those_of_one_token_at_a_time(self) -> None:
        for number, hybrid in enumerate(HYBRIDS):
            for followup in ("chain", "fork"):
                for ranks, parallel, batch in (
                    (1, {}, {}),
                    (2, {"cp": 2}, {"max_sequences": 3}),
                    (2, {"sp": 2}, {}),
                    (4, {"cp": 2, "tp": 2}, {}),
                    (2, {"dp": 2}, {}),
                )[number % 2 :: 2]:
                    with self.subTest(hybrid=hybrid, followup=followup, parallel=parallel):
                        job = self.job(
                            hybrid,
                            f"{followup}-{ranks}",
                            followup,
                            5,
                            parallel=parallel,
                            batch={"max_sequences": 4, "max_batch_tokens": 48, **batch},
                        )
                        self.run_job(job, ranks, "--fresh")
                        self.assert_same_bits(self.results(job), self.without(hybrid, followup))
                        drafts = self.report(job)["drafts"]
                        # The tokens that come are hard to guess here; test_drafts.cpp has drafts that are right.
                        self.assertGreater(drafts["tried"], 20)
                        self.assertGreater(drafts["computed_again"], 20)

    def test_sequences_that_yield_have_the_right_state(self) -> None:
        os.environ["PECIA_FORCE_YIELDS"] = "3"
        self.addCleanup(os.environ.pop, "PECIA_FORCE_YIELDS", None)
        for hybrid, followup, ranks, park, parallel in (
            (HYBRIDS[0], "chain", 1, "host", {}),
            (HYBRIDS[0], "fork", 2, "disk", {"cp": 2}),
            (HYBRIDS[3], "chain", 2, "off", {"cp": 2}),
            (HYBRIDS[2], "chain", 4, "host", {"cp": 2, "tp": 2}),
        ):
            with self.subTest(hybrid=hybrid, followup=followup, park=park, parallel=parallel):
                kv = {"admission": "demand", "park": park}
                job = self.job(hybrid, f"{park}-{ranks}", followup, 5, kv=kv, parallel=parallel)
                self.run_job(job, ranks, "--fresh")
                self.assert_same_bits(self.results(job), self.without(hybrid, followup))
                demand = self.report(job)["kv"]["demand"]
                self.assertGreater(demand["forgotten" if park == "off" else "parked"], 0)

    def test_kills_and_stops_lose_nothing(self) -> None:
        generation = {"max_new_tokens": 500, "ignore_eos": True}
        fp32 = {"path": str(SOURCE / "tests" / "goldens" / HYBRIDS[0]), "compute": "fp32"}
        # A few at a time, so that answers end one after the other.
        batch = {"max_sequences": 2, "max_batch_tokens": 48}
        long: dict[str, Any] = {"kv": {"dtype": "fp32"}, "model": fp32, "batch": batch}
        alone = self.job(HYBRIDS[0], "alone", "chain", "off", **long)
        self.lengthen(alone, generation)
        self.run_job(alone, 1)
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                job = self.job(HYBRIDS[0], f"killed-{ranks}", "chain", 6, **long)
                self.lengthen(job, generation)
                kill_and_stop(self, job, ranks, ((signal.SIGTERM, 1), (signal.SIGKILL, 4)))
                self.run_job(job, ranks)
                wanted = self.results(alone)
                self.assert_same_answers(self.results(job), wanted, wanted.rows(DONE))

    def lengthen(self, job: Path, generation: dict[str, Any]) -> None:
        asked = json.loads(job.read_text())
        asked["generation"].update(generation)
        job.write_text(json.dumps(asked))

    def in_fp32(self, hybrid: str) -> dict[str, Any]:
        """Where sums are in another order, what is narrower gives other texts."""
        model = {"path": str(SOURCE / "tests" / "goldens" / hybrid), "compute": "fp32"}
        return {"model": model, "kv": {"dtype": "fp32"}, "reproducible": "run"}

    def test_teams_answer_with_the_same_text(self) -> None:
        again = 0
        for hybrid in HYBRIDS:
            for followup in ("chain", "fork"):
                alone = self.job(hybrid, f"fp32-{followup}", followup, "off", **self.in_fp32(hybrid))
                self.run_job(alone, 1)
                wanted = self.results(alone)
                for ranks, parallel in (
                    (2, {"cp": "elastic"}),
                    (3, {"cp": "elastic", "scheduler": "loongserve"}),
                    (4, {"cp": "elastic", "tp": 2}),
                    (2, {"cp": 2, "phases": "apart"}),
                    (4, {"cp": "elastic", "phases": "apart", "answering": 2}),
                ):
                    with self.subTest(hybrid=hybrid, followup=followup, parallel=parallel):
                        job = self.job(
                            hybrid, f"teams-{followup}", followup, 5, parallel=parallel, **self.in_fp32(hybrid)
                        )
                        self.run_job(job, ranks, "--fresh")
                        self.assert_same_answers(self.results(job), wanted, wanted.rows(DONE))
                        drafts = self.report(job)["drafts"]
                        self.assertGreater(drafts["tried"], 20)
                        again += drafts["computed_again"]
        self.assertGreater(again, 100)

    def test_states_of_teams_yield_move_and_go_back(self) -> None:
        os.environ["PECIA_FORCE_YIELDS"] = "5"
        self.addCleanup(os.environ.pop, "PECIA_FORCE_YIELDS", None)
        alone = self.job(DENSE, "long", "chain", "off", **self.in_fp32(DENSE))
        self.lengthen(alone, {"max_new_tokens": 80})
        self.run_job(alone, 1)
        wanted = self.results(alone)
        ways = {"parked": 0, "moved": 0, "forgotten": 0}
        for ranks, park, parallel in (
            (2, "host", {"cp": "elastic"}),
            (3, "disk", {"cp": "elastic", "scheduler": "loongserve"}),
            (4, "off", {"cp": "elastic", "tp": 2}),
            (3, "host", {"cp": "elastic", "phases": "apart", "answering": 2}),
        ):
            with self.subTest(parallel=parallel, park=park):
                sections = {**self.in_fp32(DENSE), "kv": {"dtype": "fp32", "admission": "demand", "park": park}}
                job = self.job(DENSE, "yields", "chain", 5, parallel=parallel, **sections)
                self.lengthen(job, {"max_new_tokens": 80})
                self.run_job(job, ranks, "--fresh")
                self.assert_same_answers(self.results(job), wanted, wanted.rows(DONE))
                self.assertGreater(self.report(job)["drafts"]["computed_again"], 0)
                for way in ways:
                    ways[way] += self.report(job)["kv"]["demand"][way]
        for way, times in ways.items():
            self.assertGreater(times, 0, way)

    def test_teams_lose_nothing_when_they_are_killed_or_stopped(self) -> None:
        sections = {**self.in_fp32(DENSE), "batch": {"max_sequences": 2, "max_batch_tokens": 48}}
        generation = {"max_new_tokens": 400, "ignore_eos": True}
        alone = self.job(DENSE, "alone", "chain", "off", **sections)
        self.lengthen(alone, generation)
        self.run_job(alone, 1)
        wanted = self.results(alone)
        for ranks, parallel in ((3, {"cp": "elastic"}), (2, {"cp": 2, "phases": "apart"})):
            with self.subTest(ranks=ranks, parallel=parallel):
                job = self.job(DENSE, f"killed-teams-{ranks}", "chain", 6, parallel=parallel, **sections)
                self.lengthen(job, generation)
                kill_and_stop(self, job, ranks, ((signal.SIGTERM, 1), (signal.SIGKILL, 4)))
                self.run_job(job, ranks)
                self.assert_same_answers(self.results(job), wanted, wanted.rows(DONE))

    def test_levels_read_what_is_drafted_after(self) -> None:
        for hybrid in HYBRIDS:
            sections = {**self.in_fp32(hybrid), "batch": {"max_sequences": 4, "max_batch_tokens": 640}}
            requests = random_requests(4, 530, 900, seed=6, every_second_turn=2)
            generation = {"max_new_tokens": 24, "ignore_eos": True, "logprobs": 1}
            alone = self.write_job(requests, f"{hybrid}-alone", generation=generation, **sections)
            self.run_job(alone, 1)
            wanted = self.results(alone)
            for ranks, parallel in ((2, {"cp": 2}), (4, {"cp": 2, "tp": 2})):
                with self.subTest(hybrid=hybrid, parallel=parallel):
                    job = self.write_job(
                        requests,
                        f"{hybrid}-csa",
                        generation={**generation, "drafts": 5},
                        parallel=parallel,
                        attention={"sparse": "csa", "drop": 0.0},
                        **sections,
                    )
                    self.run_job(job, ranks, "--fresh")
                    found = self.results(job)
                    self.assert_same_answers(found, wanted, wanted.rows(DONE))
                    self.assertTrue(any(mode.endswith(b"+csa") for mode in found["mode"]), set(found["mode"]))
                    self.assertGreater(self.report(job)["drafts"]["computed_again"], 0)


if __name__ == "__main__":
    unittest.main()
