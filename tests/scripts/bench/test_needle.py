# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import h5py
import numpy as np

from pecia_tools.bench.needle import Needle, answers, is_found, main, needles, prompt_of
from pecia_tools.model_folder import ModelFolder
from support import ScriptTest, make_model, make_results


class Needles(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.model = ModelFolder(make_model(self.folder / "model"))

    def test_lie_at_each_depth(self) -> None:
        found = needles(2, 5, seed=1)
        self.assertEqual([needle.depth for needle in found], [0, 0.25, 0.5, 0.75, 1] * 2)
        self.assertEqual(len({needle.number for needle in found}), 10)
        self.assertEqual(found, needles(2, 5, seed=1))
        self.assertEqual([needle.depth for needle in needles(1, 1, seed=1)], [0])

    def test_prompts_have_the_needle_at_its_depth_and_the_question_at_their_end(self) -> None:
        encode = self.model.tokenizer.encode
        hay = [9] * 200
        for depth in (0, 0.5, 1):
            needle = Needle(depth, "Oslo", "12345")
            prompt = prompt_of(self.model, needle, hay, 200)
            self.assertEqual(len(prompt), 200)
            sentence = encode(needle.sentence(), add_special_tokens=False).ids
            question = encode(needle.question(), add_special_tokens=False).ids
            self.assertEqual(prompt[-len(question) :], question)
            room = 200 - len(sentence) - len(question)
            begin = round(depth * room)
            self.assertEqual(prompt[begin : begin + len(sentence)], sentence)
            self.assertEqual(prompt.count(9), room + (sentence + question).count(9))
        self.assert_refused("a needle and its question", call=lambda: prompt_of(self.model, needle, hay, 5))

    def test_answers_begin_with_the_number(self) -> None:
        needle = Needle(0.5, "Oslo", "12345")
        for answer, found in ((" 12345.", True), ("12345", True), (" 1234", False), (" is 12345", False)):
            self.assertEqual(is_found(needle, answer), found)

    def test_answers_are_read_from_results(self) -> None:
        ids = self.model.tokenizer.encode("the", add_special_tokens=False).ids
        rows = [{"id": f"n{row}", "state": 2, "slots": 4, "tokens": ids} for row in range(2)]
        path = make_results(self.folder / "results.h5", rows)
        self.assertEqual([answer.strip() for answer in answers(self.folder, self.model)], ["the"] * 2)
        with h5py.File(path, "a") as file:
            file["state"][1] = np.uint8(0)
        self.assert_refused("turn 1 is not done", call=lambda: answers(self.folder, self.model))

    def test_prompts_fit_the_model(self) -> None:
        program = self.folder / "pecia"
        program.touch()
        config = self.folder / "model/config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "max_position_embeddings": 2048}))
        self.assert_refused(
            "more than the model's",
            call=lambda: main(
                ["--model", str(self.folder / "model"), "--program", str(program), "--tokens", "100000"]
            ),
        )
