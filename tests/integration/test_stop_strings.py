# SPDX-License-Identifier: Apache-2.0
"""Stop strings: found in the text of answers as the library `tokenizers` decodes them."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import unittest
from pathlib import Path
from typing import Any, Optional

from tokenizers import Tokenizer, decoders, models

from harness import (
    DONE,
    DRAINED,
    MODEL,
    PARTIAL,
    REFUSED,
    VOCAB,
    Request,
    Results,
    RunTest,
    random_requests,
    wait_for,
    wait_for_state,
)

STOP, LENGTH = 1, 2
GENERATION: dict[str, Any] = {"max_new_tokens": 60, "temperature": 1.5, "seed": 3}
TEXTS = [" " + "".join(letters) for letters in itertools.product("abé☂", repeat=2)]


def tiny_tokenizer() -> Tokenizer:
    """Tokens of ByteLevel: texts of two letters, and the bytes of é and ☂ alone."""
    alphabet = {"é": "Ã©", "☂": "âĺĤ", " ": "Ġ"}
    texts = ["".join(alphabet.get(letter, letter) for letter in text) for text in TEXTS]
    texts += ["Ã", "©", "â", "ĺ", "Ĥ", "a", "b", "ab", "Ġ", "ba", "aab", "Ċ", "ĊĊ"]
    texts += [f"{first}{second}" for first in "cdefghij" for second in "klmnopqr"]
    special = [f"<{index}>" for index in range(3)]
    vocab = {text: index for index, text in enumerate([*special, *texts][:VOCAB])}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    return tokenizer


class StopStringsTest(RunTest):
    def setUp(self) -> None:
        super().setUp()
        self.model = self.folder / "model"
        shutil.copytree(MODEL, self.model)
        self.tokenizer = tiny_tokenizer()
        self.tokenizer.save(str(self.model / "tokenizer.json"))
        self.assertEqual(self.tokenizer.get_vocab_size(), VOCAB)

    def text(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True)

    def job(
        self, requests: list[Request], name: str, stop: Optional[list[str]] = None, **sections: Any
    ) -> Path:
        generation = {**GENERATION, **sections.pop("generation", {})}
        if stop is not None:
            generation["stop"] = stop
        sections["generation"] = generation
        return self.write_job(requests, name, model={"path": str(self.model)}, **sections)

    def run_of(
        self, ranks: int, requests: list[Request], name: str, *options: Any, **more: Any
    ) -> Results:
        job = self.job(requests, name, *options, **more)
        self.run_job(job, ranks)
        return self.results(job)

    def assert_stopped(
        self, found: Results, row: int, all_tokens: list[int], stop: list[str]
    ) -> bool:
        """The row is what is left of its answer without stop strings; whether one was found."""
        for count in range(1, len(all_tokens) + 1):
            data = self.text(all_tokens[:count]).encode()
            ends = [(at + len(s.encode()), at) for s in stop if (at := data.find(s.encode())) >= 0]
            if ends:
                self.assertEqual(found.tokens(row), all_tokens[:count])
                self.assertEqual(found["finish_reason"][row], STOP)
                self.assertEqual(found["text_bytes"][row], min(ends)[1])
                return True
        self.assertEqual(found.tokens(row), all_tokens)
        self.assertEqual(found["text_bytes"][row], -1)
        return False

    def test_answers_end_before_the_jobs_stop_strings(self) -> None:
        requests = random_requests(12, 5, 40, seed=5)
        plain = self.run_of(1, requests, "plain")
        stop = ["é a", "ab", "☂ b", "a☂ "]
        found = {ranks: self.run_of(ranks, requests, f"on-{ranks}", stop) for ranks in (1, 3)}
        stopped = [self.assert_stopped(found[1], row, plain.tokens(row), stop) for row in range(12)]
        self.assertGreater(sum(stopped), 4)
        self.assertLess(sum(stopped), 12)
        self.assertEqual(plain["text_bytes"].tolist(), [-1] * 12)
        self.assert_same_answers(found[3], found[1], range(12))
        self.assertEqual(found[3]["text_bytes"].tolist(), found[1]["text_bytes"].tolist())

    def test_ignore_eos_does_not_switch_them_off(self) -> None:
        requests = random_requests(6, 5, 40, seed=6)
        eos = {"stop_token_ids": "auto", "ignore_eos": True}
        plain = self.run_of(1, requests, "plain", generation=eos)
        found = self.run_of(1, requests, "stopped", ["b"], generation=eos)
        self.assertEqual(plain["finish_reason"].tolist(), [LENGTH] * 6)
        for row in range(6):
            self.assertTrue(self.assert_stopped(found, row, plain.tokens(row), ["b"]))

    def test_turns_of_a_fork_have_stop_strings_of_their_own(self) -> None:
        for first in (0, 60):
            with self.subTest(tokens_of_the_stem=first):
                (request,) = random_requests(1, 20, 20, seed=7)
                request.turns += [[5 + index, 9] for index in range(8)]
                request.max_new_tokens = [first] + [60] * 8
                plain = self.run_of(1, [request], f"plain-{first}", followup="fork")
                request.stop = [
                    '["a"]',
                    "",
                    "[]",
                    '["é"]',
                    '["xyz"]',
                    '["b", " "]',
                    "",
                    "[]",
                    '["☂"]',
                ]
                found = self.run_of(2, [request], f"stopped-{first}", [" b"], followup="fork")
                for row, text in enumerate(request.stop):
                    stop = json.loads(text) if text else [" b"]
                    self.assert_stopped(found, row, plain.tokens(row), stop)
                self.assertEqual(found["text_bytes"][[2, 4, 7]].tolist(), [-1] * 3)
                self.assertGreater((found["text_bytes"] >= 0).sum(), 2)

    def test_a_chain_goes_on_after_a_stopped_answer(self) -> None:
        requests = random_requests(4, 5, 20, seed=8, every_second_turn=1)
        found = {ranks: self.run_of(ranks, requests, f"on-{ranks}", ["a"]) for ranks in (1, 2)}
        self.assert_same_answers(found[1], found[2], range(8))
        first, second = range(0, 8, 2), range(1, 8, 2)
        self.assertGreater((found[1]["text_bytes"][list(first)] >= 0).sum(), 2)
        for row in second:
            before = found[1]["prompt_tokens"][row - 1] + found[1]["output_tokens"][row - 1]
            self.assertEqual(found[1]["cached_tokens"][row], before)

    def test_a_drained_answer_is_searched_on(self) -> None:
        long = {"max_new_tokens": 2800, "ignore_eos": True}
        requests = random_requests(3, 10, 40, seed=21)
        requests[0].max_new_tokens = [5]
        for request in requests[1:]:
            request.max_new_tokens = [2800]
        plain = self.run_of(1, requests, "plain", generation=long)
        # What each says for the first time late, over several tokens.
        stop = []
        for row in (1, 2):
            tokens = plain.tokens(row)
            before, data = self.text(tokens[:2500]), self.text(tokens)
            length = next(
                n for n in range(2, 200) if data.find(data[len(before) :][:n]) >= len(before) - n
            )
            stop.append(data[len(before) :][:length])
        job = self.job(requests, "drained", stop, generation=long)
        launch = self.start(job, 2, together=True)
        wait_for("all ranks", lambda: len(launch.ranks()) == 2)
        wait_for_state(self.output(job) / "results.h5", 0, DONE)
        launch.signal_ranks(signal.SIGTERM)
        self.end(launch, DRAINED)
        before = self.results(job)
        self.assertGreater(len(before.rows(PARTIAL)), 0, "the signal came too late")
        self.assertEqual(before["text_bytes"][before.rows(PARTIAL)].max(), -1)
        self.run_job(job, 1)
        found = self.results(job)
        for row in (1, 2):
            self.assertTrue(self.assert_stopped(found, row, plain.tokens(row), stop))

    def test_what_cannot_be_done_is_refused_before_a_start(self) -> None:
        requests = random_requests(2, 5, 10, seed=9)
        own = random_requests(2, 5, 10, seed=9)
        own[1].stop = ['["x"]']
        path = self.model / "tokenizer.json"
        jobs = [self.job(requests, "of-the-job", ["x"]), self.job(own, "of-a-turn")]
        tokenizer = json.loads(path.read_text())
        for change, words in (
            (
                lambda: path.write_text(json.dumps({**tokenizer, "decoder": {"type": "CTC"}})),
                "'CTC'",
            ),
            (lambda: path.write_text("{"), "cannot be read"),
            (path.unlink, "tokenizer.json is not there"),
        ):
            change()
            for job in jobs:
                with self.subTest(job=job.name, words=words):
                    self.assertIn(words, self.run_job(job, 2, expect=REFUSED))
                    self.assertIn(words, self.run_job(job, 0, "--validate", expect=REFUSED))
        self.run_job(self.job(requests, "without"), 1)

    def test_finished_answers_stay_under_another_stop_string(self) -> None:
        job = self.job(random_requests(2, 5, 10, seed=9), "job", ["x"])
        self.run_job(job, 1)
        before = self.results(job)
        words = self.run_job(job, 1, "--set", "generation.stop=[y]")
        self.assertIn("nothing is left to do", words)
        for row in (0, 1):
            self.assertEqual(self.results(job).row_bytes(row), before.row_bytes(row))


if __name__ == "__main__":
    unittest.main()
