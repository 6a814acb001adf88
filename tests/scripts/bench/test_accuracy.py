# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import re
import subprocess
import sys
import unittest
from pathlib import Path

import h5py
import numpy as np

from pecia_tools.bench import accuracy as bench_accuracy
from pecia_tools.bench.accuracy import (
    SETTINGS,
    chosen_settings,
    last_words,
    passages_again,
    recalled,
    sparse_work,
    work_cells,
)
from pecia_tools.bench.predictions import (
    Predictions,
    differences,
    divergence,
    figures,
    read_predictions,
)
from pecia_tools.model_folder import ModelFolder
from support import PROSE, ScriptTest, make_model, make_results, quietly, read_turns

NAN = math.nan


def predictions(logprobs: list[float], most_likely: list[int]) -> Predictions:
    return Predictions(np.array(logprobs), np.array(most_likely))


class Arithmetic(unittest.TestCase):
    def test_mean_and_perplexity(self) -> None:
        found = figures(predictions([-1.0, -2.0, -6.0], [1, 2, 3]))
        self.assertEqual((found["tokens"], found["nll"]), (3, 3.0))
        self.assertAlmostEqual(found["perplexity"], 20.0855369, places=6)

    def test_differences_are_positive_where_the_text_is_less_likely(self) -> None:
        reference = predictions([-1.0, -2.0, -3.0, -2.0], [5, 6, 7, 8])
        found = differences(predictions([-1.5, -2.0, -2.0, -4.0], [5, 9, 7, 8]), reference)
        self.assertEqual(found["difference"], 0.375)  # of 0.5, 0, −1, 2
        self.assertAlmostEqual(found["difference_error"], math.sqrt(4.6875 / 3 / 4))
        self.assertEqual(found["largest"], 2)
        self.assertEqual(found["same_most_likely"], 0.75)

    def test_the_largest_may_be_of_a_token_that_became_likelier(self) -> None:
        found = differences(predictions([-1.0, -1.0], [1, 1]), predictions([-4.0, -1.5], [1, 1]))
        self.assertEqual(found["largest"], 3)

    def test_one_token_has_no_standard_error(self) -> None:
        found = differences(predictions([-1.0], [1]), predictions([-2.0], [1]))
        self.assertEqual(found["difference"], -1)
        self.assertTrue(math.isnan(found["difference_error"]))


class Work(unittest.TestCase):
    def test_sparse_attention_is_held_against_dense(self) -> None:
        sparse = {
            "attention_pairs": 30,
            "dense_attention_pairs": 120,
            "sent_bytes": 1_500_000,
            "dense_sent_bytes": 2e6,
            "rows": 7,
        }
        self.assertEqual(work_cells(sparse_work({"sparse": sparse})), ["25 %", "1.5 of 2.0"])
        for report in ({}, {"sparse": None}, {"sparse": {**sparse, "dense_attention_pairs": 0}}):
            self.assertEqual(work_cells(sparse_work(report)), ["–", "–"])


class Results(ScriptTest):
    def results(self, logprobs: list[float], states: tuple[int, int] = (2, 2)) -> Path:
        """Of two prompts of 3 and 2 tokens."""
        rows = [{"id": f"p{state}", "state": state, "slots": 0} for state in states]
        path = make_results(self.folder / "results.h5", rows)
        with h5py.File(path, "a") as file:
            file["prompt_slot_offsets"] = np.array([0, 3, 5], dtype=np.int64)
            file["prompt_token_logprob"] = np.array(logprobs, dtype=np.float32)
            file["prompt_top_tokens"] = np.array([[-1], [4], [5], [-1], [6]], dtype=np.int32)
        return self.folder

    def test_a_prompt_s_first_token_is_not_predicted(self) -> None:
        found = read_predictions(self.results([NAN, -1, -2, NAN, -4]))
        self.assertEqual(found.logprobs.tolist(), [-1, -2, -4])
        self.assertEqual(found.most_likely.tolist(), [4, 5, 6])

    def test_the_program_in_the_documentation_gives_perplexities(self) -> None:
        text = (Path(__file__).resolve().parents[3] / "configs/answers.md").read_text("utf-8")
        program = re.search(r"<<'PYTHON'\n(.*?)^PYTHON$", text, re.DOTALL | re.MULTILINE)[1]
        path = self.results([NAN, -1, -2, NAN, -4]) / "results.h5"
        ended = subprocess.run(
            [sys.executable, "-c", program, path], capture_output=True, text=True, check=False
        )
        self.assertEqual(ended.stderr, "")
        lines = [line.split()[1:] for line in ended.stdout.splitlines()]
        expected = [f"{math.exp(1.5):.3f}", f"{math.exp(4):.3f}"]
        self.assertEqual(lines, [[e, "over", n, "tokens"] for e, n in zip(expected, "21")])

    def test_any_other_that_is_not_a_number_is_refused(self) -> None:
        for wrong in (NAN, -math.inf):
            with self.subTest(wrong=wrong):
                folder = self.results([NAN, -1, wrong, NAN, -4])
                self.assert_refused(
                    "1 of 3 log-probabilities", call=lambda folder=folder: read_predictions(folder)
                )

    def whole(self, name: str, probabilities: list[list[float]]) -> Path:
        """A run's results with the probabilities of a vocabulary of 2 for 3 prompt tokens and 2."""
        folder = self.folder / name
        folder.mkdir()
        rows = [{"id": f"p{row}", "state": 2, "slots": 0} for row in range(2)]
        with h5py.File(make_results(folder / "results.h5", rows), "a") as file:
            logprobs = np.log(np.array(probabilities, dtype=np.float32))
            logprobs[[0, 3]] = np.nan
            file["prompt_slot_offsets"] = np.array([0, 3, 5], dtype=np.int64)
            file["prompt_token_logprob"] = logprobs[:, 0]
            file["prompt_top_logprobs"] = logprobs
        return folder

    def test_the_divergence_of_whole_vocabularies(self) -> None:
        half, first = [0.5, 0.5], [0.5, 0.5]
        reference = self.whole("reference", [first, half, [0.25, 0.75], first, half])
        found = self.whole("found", [first, half, half, first, [0.25, 0.75]])
        self.assertEqual(read_predictions(found).most_likely.tolist(), [0, 0, 1])
        ours = divergence(found, reference)
        quarter = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
        away = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
        self.assertAlmostEqual(ours["divergence"], (quarter + away) / 3, places=6)
        self.assertAlmostEqual(
            ours["divergence_error"],
            float(np.std([0, quarter, away], ddof=1)) / math.sqrt(3),
            places=6,
        )
        self.assertAlmostEqual(divergence(found, found)["divergence"], 0)

    def test_runs_without_whole_vocabularies_have_no_divergence(self) -> None:
        plain = self.results([NAN, -1, -2, NAN, -4])
        self.assert_refused("prompt_top_logprobs is missing", call=lambda: divergence(plain, plain))

    def test_an_open_turn_is_refused(self) -> None:
        folder = self.results([NAN, -1, -2, NAN, -4], (2, 0))
        self.assert_refused("turn 1 is not done", call=lambda: read_predictions(folder))


class Recall(ScriptTest):
    def test_passages_stand_at_the_end_again(self) -> None:
        text = list(range(1000, 1400))
        found = passages_again(text)
        self.assertEqual([len(again) for again in found], [400] * 3)
        for again, begin in zip(found, (50, 150, 250), strict=True):
            self.assertEqual(again[:352], text[:352])
            self.assertEqual(again[352:], text[begin : begin + 48])

    def test_the_share_of_tokens_that_are_found(self) -> None:
        passages = passages_again(list(range(1000, 1400)))
        most_likely = [token for text in passages for token in text[1:]]
        everything = predictions([-1.0] * len(most_likely), most_likely)
        self.assertEqual(recalled(passages, everything), 1)
        for place in (-1, -32, 398, 398 - 31):  # the last and the first judged tokens of the last and the first text
            most_likely[place] = 7
        most_likely[-33] = 7  # of the last cue
        everything = predictions([-1.0] * len(most_likely), most_likely)
        self.assertAlmostEqual(recalled(passages, everything), 1 - 4 / 96)


class Settings(ScriptTest):
    def test_the_default_table_and_others(self) -> None:
        self.assertEqual(chosen_settings(None), SETTINGS)
        self.assertEqual(
            chosen_settings([["bf16"], ["narrow", "kv.dtype=fp8", "model.dtype=int8"]]),
            {"bf16": ["model.compute=bf16"], "narrow": ["kv.dtype=fp8", "model.dtype=int8"]},
        )

    def test_what_is_refused(self) -> None:
        for given, part in (
            ([["narrow"]], "--setting narrow has no KEY=VALUE"),
            ([["narrow", "kv.dtype"]], "'kv.dtype' is not KEY=VALUE"),
            ([["bf16"], ["bf16", "a=b"]], "bf16 is given twice"),
        ):
            with self.subTest(given=given):
                self.assert_refused(part, call=lambda given=given: chosen_settings(given))

    def test_options(self) -> None:
        program = self.write("pecia", "")
        for arguments, part in (
            (["--tokens", "1"], "--tokens is 1; it must be at least 2"),
            (["--ranks", "0"], "--ranks is 0"),
            (["--program", str(self.folder / "none")], "no such program"),
        ):
            with self.subTest(arguments=arguments):
                self.assert_refused(
                    part,
                    call=lambda arguments=arguments: bench_accuracy.parse(
                        ["--program", str(program), *arguments]
                    ),
                )


class Prompts(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.model = ModelFolder(make_model(self.folder / "model"))

    def test_the_texts_first_tokens_one_after_the_other(self) -> None:
        texts = [self.write("a.txt", PROSE[:60]), self.write("b.txt", PROSE[60:])]
        tokens = bench_accuracy.read_tokens(self.model, texts, None)
        self.assertIn(PROSE[:20], self.model.tokenizer.decode(tokens))
        self.assertIn(PROSE[-30:].strip(), self.model.tokenizer.decode(tokens))
        self.assertEqual(bench_accuracy.read_tokens(self.model, texts, 7), tokens[:7])
        self.assert_refused(
            "--tokens 5000",
            f"only {len(tokens)}",
            call=lambda: bench_accuracy.read_tokens(self.model, texts, 5000),
        )

    def test_prompts_are_no_longer_than_the_model_reads(self) -> None:
        path = self.folder / "prompts.h5"
        bench_accuracy.write_prompts(
            path, self.model, bench_accuracy.pieces_of(list(range(5, 14)), 4)
        )
        turns = read_turns(path)
        self.assertEqual(
            list(turns.values()), [[[5, 6, 7, 8]], [[9, 10, 11, 12]], [[13]]], list(turns)
        )
        with h5py.File(path) as file:
            self.assertEqual(file["max_new_tokens"][:].tolist(), [0, 0, 0])


class Runs(ScriptTest):
    """With a program in pecia's place that refuses."""

    def test_what_a_program_said_last(self) -> None:
        self.assertEqual(last_words("pecia: a\npecia: b\n-----\nmpirun detected\n"), "pecia: b")
        self.assertEqual(last_words("killed\n\n"), "killed")
        self.assertEqual(last_words(""), "it said nothing")

    def test_settings_that_are_refused_are_named_and_the_others_go_on(self) -> None:
        model = make_model(self.folder / "model")
        program = self.write("pecia", '#!/bin/sh\necho "pecia: not $6" >&2\nexit 2\n')
        program.chmod(0o755)
        code, out, err = quietly(
            bench_accuracy.main,
            *("--program", program, "--model", model, "--text", self.write("a.txt", PROSE)),
            *("--tokens", 20, "--setting", "one", "a=1", "--setting", "two", "b=2"),
        )
        self.assertEqual((code, out), (1, ""))
        self.assertIn("one was not measured: pecia: not a=1", err)
        self.assertIn("two was not measured: pecia: not b=2", err)
