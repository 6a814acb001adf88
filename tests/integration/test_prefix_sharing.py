# SPDX-License-Identifier: Apache-2.0
"""Prompts that begin alike: the beginning is read once, and every answer is what it was without that."""

from __future__ import annotations

import json
import signal
import subprocess
import unittest
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from harness import (
    ALL_DONE,
    DONE,
    DRAINED,
    FAILED,
    PARTIAL,
    PROGRAM,
    SOME_FAILED,
    SOURCE,
    Request,
    Results,
    RunTest,
    random_requests,
    wait_for,
    wait_for_state,
    write_shard,
)

SHARED = 160  # tokens of the book; a multiple of the block in which prompts are compared
QUESTIONS = 12
GENERATION: dict[str, Any] = {"max_new_tokens": 12, "ignore_eos": True, "logprobs": 2}
BATCH: dict[str, Any] = {"max_batch_tokens": 32}


def questions(seed: int = 3, shared: int = SHARED) -> list[Request]:
    """Questions about one book, and between them prompts that have nothing in common."""
    book = random_requests(1, shared, shared, seed)[0].turns[0]
    requests = random_requests(QUESTIONS, 30, 60, seed + 1)
    for request in requests:
        request.turns[0] = book + request.turns[0]
    others = random_requests(4, 20, 60, seed + 2)
    for index, other in enumerate(others):
        other.id = f"other-{index}"
        requests.insert(3 * index, other)
    return requests


class PrefixSharingTest(RunTest):
    def job(self, name: str, shares: bool = True, **sections: Any) -> Path:
        batch = {**BATCH, "prefix_sharing": shares, **sections.pop("batch", {})}
        return self.write_job(
            sections.pop("requests", questions()),
            name,
            **{"generation": GENERATION, "batch": batch, **sections},
        )

    def questions_alone(self) -> Results:
        return self.once("questions", self.alone)

    def alone(self, expect: int = ALL_DONE, **sections: Any) -> Results:
        """What independent requests give on one rank."""
        job = self.job("alone", shares=False, **sections)
        self.run_job(job, 1, expect=expect)
        self.assertEqual(
            self.report(job)["prefix_sharing"], {"none": "batch.prefix_sharing is false"}
        )
        return self.results(job)

    def assert_shared(self, job: Path, prefixes: int) -> None:
        sharing = self.report(job)["prefix_sharing"]
        self.assertEqual(
            sharing,
            {
                "prefixes": prefixes,
                "prefix_tokens": prefixes * SHARED,
                "requests": QUESTIONS,
                "shared_tokens": QUESTIONS * SHARED,
                "repeated_tokens": 0,
                "spared_tokens": (QUESTIONS - prefixes) * SHARED,
            },
        )
        all_tokens = int(self.results(job)["prompt_tokens"].sum())
        computed = self.report(job)["counts"]["prompt_tokens"]
        self.assertEqual(computed, all_tokens - sharing["spared_tokens"])

    def assert_all_as(self, job: Path, wanted: Results) -> None:
        found = self.results(job)
        self.assertEqual(found.rows(DONE), list(range(QUESTIONS + 4)))
        self.assert_same_answers(found, wanted, found.rows(DONE))
        for name in ("prompt_tokens", "cached_tokens", "request_id"):
            self.assertEqual(found[name].tolist(), wanted[name].tolist())

    def test_answers_are_the_same_on_every_layout(self) -> None:
        wanted = self.questions_alone()
        self.assertGreater(len({t for row in wanted.rows(DONE) for t in wanted.tokens(row)}), 20)
        cases: tuple[tuple[str, int, int, dict[str, Any]], ...] = (
            ("one", 1, 1, {}),
            ("ring", 3, 1, {}),
            ("by-rule", 2, 1, {"parallel": {"cp": 2, "ring": "auto"}}),
            ("heads", 2, 1, {"parallel": {"sp": 2, "cp": 1}}),
            ("weights", 2, 1, {"parallel": {"tp": 2, "cp": 1}}),
            ("shift", 2, 1, {"parallel": {"sp": 2, "cp": 1, "decode": "shift"}}),
            ("chunked", 2, 1, {"batch": {"policy": "chunked"}}),
            ("replicas", 2, 2, {"parallel": {"dp": 2}}),
            ("teams", 2, 2, {"parallel": {"cp": "elastic"}}),
        )
        for name, ranks, parts, sections in cases:
            with self.subTest(name):
                job = self.job(name, **sections)
                words = self.run_job(job, ranks)
                self.assertRegex(words, rf"{QUESTIONS} requests begin alike in {parts} group")
                self.assert_shared(job, parts)
                self.assert_all_as(job, wanted)

    def test_bits_are_the_same_where_layouts_must_not_matter(self) -> None:
        layout = {"reproducible": "layout"}
        write_shard(self.folder / "forked.h5", self.forks()[:2], followup="fork")
        wanted = self.alone(input=["alone.h5", "forked.h5"], **layout)
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                job = self.job(f"bits-{ranks}", input=[f"bits-{ranks}.h5", "forked.h5"], **layout)
                words = self.run_job(job, ranks)
                self.assertIn(f"{QUESTIONS + 2} requests begin alike in 1 group", words)
                found = self.results(job)
                self.assertEqual(len(found.rows(DONE)), QUESTIONS + 4 + 6)
                for row in found.rows(DONE):
                    for name in ("tokens", "token_logprob", "top_tokens", "top_logprobs"):
                        self.assertEqual(
                            found.slots(row, name).tobytes(), wanted.slots(row, name).tobytes()
                        )

    def test_chains_of_turns_share_too(self) -> None:
        requests = questions()
        for row in (1, 5):  # of the questions
            requests[row].turns += [[7, 8, 9], [10, 11]]
        wanted = self.alone(requests=requests)
        for ranks, sections in ((1, {}), (3, {}), (2, {"parallel": {"cp": "elastic"}})):
            with self.subTest(ranks=ranks, **sections):
                job = self.job(f"chains-{ranks}", requests=requests, **sections)
                words = self.run_job(job, ranks)
                self.assertRegex(words, f"{QUESTIONS} requests begin alike in [12] group")
                found = self.results(job)
                self.assertEqual(len(found.rows(DONE)), len(requests) + 4)
                self.assert_same_answers(found, wanted, found.rows(DONE))
                for name in ("prompt_tokens", "cached_tokens"):
                    self.assertEqual(found[name].tolist(), wanted[name].tolist())

    def forks(self) -> list[Request]:
        """Forks of the book: the first turn of one is answered, too. Another has a bad turn."""
        forks = random_requests(3, 3, 40, 11)
        book = questions()[1].turns[0][:SHARED]
        for index, fork in enumerate(forks):
            fork.id = f"fork-{index}"
            fork.turns[0] = book + fork.turns[0]
            fork.turns += [[7, 8, 9], [10 + index, 11]]
            fork.max_new_tokens = [3 if index == 0 else 0, 12, 9]
        forks[2].turns.insert(1, [10**6])
        forks[2].max_new_tokens.insert(1, 5)
        return forks

    def assert_forks_as(self, job: Path, wanted: Results) -> None:
        found = self.results(job)
        self.assertEqual(len(found.rows(DONE)), QUESTIONS + 4 + 9)
        self.assertEqual(found.rows(FAILED), wanted.rows(FAILED))
        self.assertEqual(len(found.rows(FAILED)), 1)
        self.assert_same_answers(found, wanted, found.rows(DONE))
        for name in ("prompt_tokens", "cached_tokens", "request_id", "turn", "finish_reason"):
            self.assertEqual(found[name].tolist(), wanted[name].tolist())

    def test_forks_share_too(self) -> None:
        forks = self.forks()
        write_shard(self.folder / "forked.h5", forks, followup="fork")
        wanted = self.alone(SOME_FAILED, input=["alone.h5", "forked.h5"])
        stem_ends = [len(fork.turns[0]) - SHARED for fork in forks]
        for name, ranks, parts, sections in (
            ("one", 1, 1, {}),
            ("ring", 3, 1, {}),
            ("weights", 2, 1, {"parallel": {"tp": 2, "cp": 1}}),
            ("chunked", 2, 1, {"batch": {"policy": "chunked"}}),
            ("replicas", 2, 2, {"parallel": {"dp": 2}}),
            ("teams", 2, 2, {"parallel": {"cp": "elastic"}}),
        ):
            with self.subTest(name):
                job = self.job(f"forks-{name}", input=[f"forks-{name}.h5", "forked.h5"], **sections)
                words = self.run_job(job, ranks, expect=SOME_FAILED)
                self.assertRegex(words, rf"{QUESTIONS + 3} requests begin alike in {parts} group")
                self.assert_forks_as(job, wanted)
                sharing = self.report(job)["prefix_sharing"]
                self.assertEqual(sharing["repeated_tokens"], 2 * sum(stem_ends))
                self.assertEqual(sharing["requests"], QUESTIONS + 3)
                self.assertEqual(
                    sharing["spared_tokens"], (QUESTIONS + 3 - parts) * SHARED - 2 * sum(stem_ends)
                )
                computed = self.report(job)["counts"]["prompt_tokens"]
                read = int(self.results(job)["prompt_tokens"][self.results(job).rows(DONE)].sum())
                self.assertEqual(computed, read - sharing["spared_tokens"])

    def test_forks_of_one_document_in_two_files_share_it(self) -> None:
        forks = self.forks()[:2]
        forks[1].turns[0] = forks[0].turns[0]
        for fork in forks:
            write_shard(self.folder / f"{fork.id}.h5", [fork], followup="fork")
        files = ["fork-0.h5", "fork-1.h5"]
        wanted = self.alone(requests=None, input=files)
        job = self.job("two", requests=None, input=files)
        self.assertIn("2 requests begin alike in 1 group", self.run_job(job, 2))
        found = self.results(job)
        self.assertEqual(len(found.rows(DONE)), 6)
        self.assert_same_answers(found, wanted, found.rows(DONE))

    def test_forks_of_a_killed_run_share_again(self) -> None:
        write_shard(self.folder / "forked.h5", self.forks(), followup="fork")
        wanted = self.alone(SOME_FAILED, input=["alone.h5", "forked.h5"])
        job = self.job("killed", input=["killed.h5", "forked.h5"], batch={"max_sequences": 2})
        first_turn = QUESTIONS + 4 + 3  # of the second fork
        for row in (first_turn, first_turn + 1):
            launch = self.start(job, 2)
            wait_for_state(self.output(job) / "results.h5", row, DONE)
            launch.kill()
        self.assertIn("requests begin alike", self.run_job(job, 3, expect=SOME_FAILED))
        self.assert_forks_as(job, wanted)

    def plan(self, job: Path, ranks: int, *options: str) -> str:
        command: tuple[object, ...] = (PROGRAM, "plan", job, "--cluster", "h100-gtt")
        command += ("--ranks", ranks, *options)
        words = [str(word) for word in command]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return ended.stdout

    def test_plans_share_as_runs_do(self) -> None:
        write_shard(self.folder / "forked.h5", self.forks()[:2], followup="fork")
        grid = {"dp": 1, "cp": 1, "sp": 1, "tp": 1}
        cases: tuple[tuple[str, int, dict[str, Any], dict[str, Any]], ...] = (
            ("one", 1, {}, {}),
            ("weights", 2, {"tp": 2}, {}),
            ("replicas", 2, {"dp": 2}, {}),
            ("teams", 2, {"cp": "elastic"}, {}),
            ("bits", 2, {"cp": 2}, {"reproducible": "layout"}),
            ("none", 1, {}, {"shares": False}),
        )
        for name, ranks, degrees, sections in cases:
            with self.subTest(name):
                parallel = {**grid, **degrees}
                files = [f"{name}.h5", "forked.h5"]
                job = self.job(name, input=files, parallel=parallel, **sections)
                plan = json.loads(self.plan(job, ranks, "--json"))
                self.run_job(job, ranks)
                report = self.report(job)
                for layout in plan["plans"]:
                    self.assertEqual(layout["prefix_sharing"], report["prefix_sharing"])
                spared = report["prefix_sharing"].get("spared_tokens", 0)
                self.assertEqual(
                    plan["batch"]["prompt_tokens"] - spared, report["counts"]["prompt_tokens"]
                )

    def test_a_plan_counts_what_is_read_once(self) -> None:
        job = self.job("shared")
        text = self.plan(job, 1)
        self.assertIn(f"{QUESTIONS} requests begin alike in 1 group", text)
        alone = self.job("unshared", shares=False)
        self.assertNotIn("begin alike", self.plan(alone, 1))
        ends = [
            json.loads(self.plan(each, 1, "--json"))["plans"][0]["phases"]["prefill"]
            for each in (job, alone)
        ]
        self.assertLess(sum(ends[0].values()), 0.7 * sum(ends[1].values()))

    def test_what_is_left_out_says_why(self) -> None:
        dynamic = {"rope_scaling": {"type": "dynamic", "factor": 2}}
        cases: tuple[tuple[str, int, dict[str, Any]], ...] = (
            ("attention.sparse keeps other", 2, {"attention": {"sparse": "csa"}}),
            ("prompt_logprobs has every", 1, {"generation": {**GENERATION, "prompt_logprobs": 1}}),
            ("dynamic RoPE scaling rotates", 1, {"model": dynamic}),
        )
        for why, ranks, sections in cases:
            with self.subTest(why):
                job = self.job("left-out", **sections)
                self.assertIn(why, self.end(self.start(job, ranks, "--fresh"), 0))
                spared = self.report(job)["prefix_sharing"]
                self.assertTrue("none" in spared or spared["spared_tokens"] == 0, spared)

    def test_files_share_too(self) -> None:
        wanted = self.questions_alone()
        requests = questions()
        job = self.job("files", input=["files.h5", "more.h5"], requests=requests[:7])
        write_shard(self.folder / "more.h5", requests[7:])
        self.run_job(job, 1)
        self.assert_shared(job, 1)
        self.assert_all_as(job, wanted)

    def test_a_killed_run_goes_on(self) -> None:
        wanted = self.questions_alone()
        job = self.job("killed", batch={"max_sequences": 2})
        for row in (1, 8):
            launch = self.start(job, 2)
            wait_for_state(self.output(job) / "results.h5", row, DONE)
            launch.kill()
        self.run_job(job, 3)
        self.assert_all_as(job, wanted)

    def test_a_drained_run_goes_on_with_partial_answers(self) -> None:
        requests = questions()
        for index, request in enumerate(requests):  # they do not end together
            request.max_new_tokens = [300 + 50 * (index % 7)]
        wanted = self.alone(requests=requests)
        job = self.job("drained", batch={"max_sequences": 3}, requests=requests)
        launch = self.start(job, 2, together=True)
        wait_for("all ranks", lambda: len(launch.ranks()) == 2)
        wait_for_state(self.output(job) / "results.h5", 1, DONE)
        launch.signal_ranks(signal.SIGTERM)
        self.end(launch, DRAINED)
        self.assertTrue(self.results(job).rows(PARTIAL))
        self.run_job(job, 1)
        self.assert_all_as(job, wanted)

    def test_a_kept_beginning_is_read_from_its_file(self) -> None:
        book = 12_000
        sections: dict[str, Any] = {
            "requests": questions(shared=book),
            "model": {"rope_scaling": {"type": "linear", "factor": 8}},
            "limits": {"grace": "40s"},
        }
        large = {"batch": {"max_batch_tokens": 1024}}
        reference = self.job("reference", **sections, **large)
        self.run_job(reference, 1)
        wanted = self.results(reference)
        # To read the book for each question would take half a minute.
        one = {**sections, "requests": sections["requests"][1:2]}
        alone = self.alone(**one, **large)
        self.assertEqual(alone["request_id"][0], wanted["request_id"][1])
        self.assertEqual(alone.tokens(0), wanted.tokens(1))
        np.testing.assert_allclose(
            alone.slots(0, "token_logprob"), wanted.slots(1, "token_logprob"), rtol=0, atol=1e-4
        )
        # So that the book takes seconds.
        job = self.job("kept", **sections, batch={"max_batch_tokens": 16})
        launch = self.start(job, 1, together=True)
        wait_for("the rank", lambda: len(launch.ranks()) == 1)
        wait_for("its results", (self.output(job) / "results.h5").exists)
        wait_for("some of the book", lambda: "begin alike" in launch.words())
        launch.runs_for(1.0)
        launch.signal_ranks(signal.SIGTERM)
        self.end(launch, DRAINED)
        kept = self.report(job)["kv"]
        self.assertEqual(kept["kept_requests"], 1)
        self.run_job(job, 2, "--set", "batch.max_batch_tokens=1024")
        self.assertGreater(self.report(job)["kv"]["restored_tokens"], 0)
        self.assert_all_as(job, wanted)


class HybridPrefixSharingTest(RunTest):
    """Models with recurrent layers: a branch begins with the state that its beginning has at the border of a block."""

    # As in test_hybrids: states carry the rounding of all tokens before.
    logprob_tolerance: ClassVar[float] = 1.2e-3

    def job(self, name: str, requests: list[Request], shares: bool, **sections: Any) -> Path:
        model = {"path": str(SOURCE / "tests" / "goldens" / "qwen35-text-part"), "compute": "fp32"}
        generation = {"max_new_tokens": 3, "ignore_eos": True, "logprobs": 1}
        batch = {"max_batch_tokens": 128, "max_sequences": 8, "prefix_sharing": shares}
        kv = {"dtype": "fp32"}
        return self.write_job(requests, name, model=model, generation=generation, batch=batch, kv=kv, **sections)

    def test_fifty_questions_read_their_document_once(self) -> None:
        document = random_requests(1, 800, 800, seed=3)[0].turns[0]
        requests = random_requests(50, 20, 30, seed=4, every_second_turn=5)
        for request in requests:
            request.turns[0] = document + request.turns[0]
        alone = self.job("alone", requests, shares=False)
        self.run_job(alone, 1)
        wanted = self.results(alone)
        apart = self.report(alone)["counts"]["prompt_tokens"]
        for ranks, parallel in (
            (1, {}),
            (2, {"cp": 2}),
            (2, {"tp": 2}),
            (3, {"cp": "elastic"}),
            (3, {"cp": "elastic", "phases": "apart"}),
        ):
            with self.subTest(ranks=ranks, parallel=parallel):
                job = self.job("shared", requests, shares=True, parallel=parallel)
                self.run_job(job, ranks, "--fresh")
                self.assert_same_answers(self.results(job), wanted, wanted.rows(DONE))
                parts = self.report(job)["prefix_sharing"]["prefixes"]
                computed = self.report(job)["counts"]["prompt_tokens"]
                self.assertEqual(computed, apart - (50 - parts) * 800)
                if parts == 1:
                    self.assertGreater(apart, 15 * computed)

    def test_groups_may_share_a_part_and_have_different_lengths(self) -> None:
        """Two documents that begin alike, with many questions each: two groups, of which each has its own beginning."""
        common, first, second = (each.turns[0] for each in random_requests(3, 160, 160, seed=5))
        requests = random_requests(20, 20, 30, seed=6)
        for number, request in enumerate(requests):
            longer = first if number % 2 == 0 else second + second
            request.turns[0] = common + longer + request.turns[0]
        alone = self.job("alone", requests, shares=False)
        self.run_job(alone, 1)
        wanted = self.results(alone)
        for ranks, parallel in ((1, {}), (2, {"cp": 2}), (2, {"cp": "elastic"})):
            with self.subTest(ranks=ranks, parallel=parallel):
                job = self.job("shared", requests, shares=True, parallel=parallel)
                self.run_job(job, ranks, "--fresh")
                self.assert_same_answers(self.results(job), wanted, wanted.rows(DONE))
                sharing = self.report(job)["prefix_sharing"]
                self.assertEqual(sharing["shared_tokens"], 10 * 320 + 10 * 480)
                self.assertGreaterEqual(sharing["prefixes"], 2)


if __name__ == "__main__":
    unittest.main()
