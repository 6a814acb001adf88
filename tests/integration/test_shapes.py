# SPDX-License-Identifier: Apache-2.0
"""Answers with a shape: each is what its schema, regular expression or list of texts says, or fails and says why."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import unittest
import venv
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models

from harness import (
    DONE,
    DRAINED,
    FAILED,
    MODEL,
    REFUSED,
    SOME_FAILED,
    VOCAB,
    Results,
    RunTest,
    random_requests,
    wait_for,
    wait_for_state,
    write_shard,
)

# The golden's stop token is 2; tokens 0 to 2 are special.
CHARACTERS = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLM0123456789{}[]":,.- _'
LONGER = ["true", "false", "null", "yes", "no", '{"', '": ', '", "']
GENERATION: dict[str, Any] = {"max_new_tokens": 80, "temperature": 1.0, "seed": 3, "logprobs": 2}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "pages", "read"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{1,8}$"},
        "pages": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
        "read": {"type": "boolean"},
    },
}


# Numbers and texts have ends, so that every answer ends long before max_new_tokens.
CATALOGUE: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "required": ["kind", "books", "note"],
    "properties": {
        "kind": {"enum": ["novel", "letters", "log 7"]},
        "books": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {"$ref": "#/$defs/book"},
        },
        "note": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[A-C]{2,5}$"}]},
    },
    "$defs": {
        "book": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name", "pages"],
            "properties": {
                "name": {"type": "string", "pattern": "^[a-z]{1,8}$"},
                "pages": {"type": "integer", "minimum": 1, "maximum": 5000},
                "lent": {"type": "boolean"},
            },
        }
    },
}
# Lines of answers on stdin; prints what is wrong with each, or an empty line.
VALIDATE = """\
import json, sys
from jsonschema import Draft202012Validator
schema = json.load(open(sys.argv[1]))
Draft202012Validator.check_schema(schema)
validator = Draft202012Validator(schema)
for line in sys.stdin:
    wrong = validator.iter_errors(json.loads(line))
    print("; ".join(error.message.replace("\\n", " ") for error in wrong))
"""


def tokenizer() -> Tokenizer:
    texts = [*CHARACTERS.replace(" ", "Ġ"), *(text.replace(" ", "Ġ") for text in LONGER)]
    texts += [f"{first}{second}" for first in "xyz" for second in "abcdefghijklmnop"]
    special = [f"<{index}>" for index in range(3)]
    vocab = {text: index for index, text in enumerate([*special, *texts][:VOCAB])}
    made = Tokenizer(models.BPE(vocab, []))
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(special)
    return made


def fits(value: Any) -> bool:
    """What SCHEMA says, said once more."""
    return (
        isinstance(value, dict)
        and set(value) == {"name", "pages", "read"}
        and re.fullmatch("[a-z]{1,8}", value["name"]) is not None
        and 1 <= len(value["pages"]) <= 3
        and all(type(page) is int for page in value["pages"])
        and type(value["read"]) is bool
    )


def jsonschema_python() -> Path:
    """The Python of an environment that has jsonschema, which is made once."""
    place = Path(os.environ["PECIA_BUILD"]) / "tests/jsonschema"
    wanted = Path(__file__).with_name("requirements-jsonschema.txt")
    stamp = place / wanted.name
    if not stamp.exists() or stamp.read_bytes() != wanted.read_bytes():
        venv.create(place, clear=True, with_pip=True)
        pip = [place / "bin/pip", "install", "-q", "--disable-pip-version-check", "-r", wanted]
        got = subprocess.run(pip, capture_output=True, text=True, check=False)
        if got.returncode != 0:
            raise unittest.SkipTest(f"jsonschema cannot be had: {got.stderr.strip()[-200:]}")
        shutil.copy(wanted, stamp)
    return place / "bin/python"


class ShapeTest(RunTest):
    def setUp(self) -> None:
        super().setUp()
        self.model = self.folder / "model"
        shutil.copytree(MODEL, self.model)
        self.tokenizer = tokenizer()
        self.tokenizer.save(str(self.model / "tokenizer.json"))
        (self.folder / "schema.json").write_text(json.dumps(SCHEMA))

    def job(self, name: str, shape: dict[str, Any], count: int = 12, **sections: Any) -> Path:
        generation = {**GENERATION, **sections.pop("generation", {}), **shape}
        return self.write_job(
            random_requests(count, 5, 40, seed=8),
            name,
            model={"path": str(self.model)},
            generation=generation,
            **sections,
        )

    def texts(self, found: Results) -> list[str]:
        return [
            self.tokenizer.decode(found.tokens(row), skip_special_tokens=True)
            for row in found.rows(DONE)
        ]

    def test_every_answer_has_its_shape_or_says_why_not(self) -> None:
        shapes: tuple[tuple[dict[str, Any], Any], ...] = (
            ({"choice": ["yes", "no", 'a "b"']}, lambda text: text in ("yes", "no", 'a "b"')),
            ({"regex": "[a-c]{2,6}-[0-9]+"}, lambda text: re.fullmatch("[a-c]{2,6}-[0-9]+", text)),
            ({"schema": "schema.json"}, lambda text: fits(json.loads(text))),
        )
        for shape, has_it in shapes:
            for sampling in ({}, {"temperature": 0.0}, {"top_k": 5, "repetition_penalty": 1.2}):
                with self.subTest(shape=shape, sampling=sampling):
                    job = self.job("job", shape, generation=sampling)
                    launch = self.start(job, 1, "--fresh")
                    code = launch.wait()
                    found = self.results(job)
                    failed = found.rows(FAILED)
                    self.assertEqual(code, SOME_FAILED if failed else 0, launch.words())
                    for text in self.texts(found):
                        self.assertTrue(has_it(text), text)
                    for row in failed:
                        self.assertIn(b"its shape was not complete", found["error"][row])
                    self.assertGreater(len(found.rows(DONE)), 0 if sampling else 8)

    def test_requests_have_shapes_of_their_own(self) -> None:
        requests = random_requests(4, 5, 40, seed=8)
        requests[0].shape = json.dumps({"choice": ["yes"]})
        requests[2].shape = json.dumps({"regex": "[a-c]{3}"})
        job = self.job("own", {"choice": ["no"]})
        write_shard(self.folder / "own.h5", requests)
        self.run_job(job, 2)
        texts = self.texts(self.results(job))
        self.assertEqual([texts[0], texts[1], texts[3]], ["yes", "no", "no"])
        self.assertRegex(texts[2], "^[a-c]{3}$")

    def test_a_hundred_answers_are_valid_for_an_independent_validator(self) -> None:
        python = jsonschema_python()
        schema = self.folder / "catalogue.json"
        schema.write_text(json.dumps(CATALOGUE))
        shape = {"schema": "catalogue.json"}
        job = self.job("hundred", shape, 100, generation={"max_new_tokens": 250})
        self.run_job(job, 2)
        found = self.results(job)
        self.assertEqual(len(found.rows(DONE)), 100)
        texts = self.texts(found)
        self.assertGreater(len(set(texts)), 90, "they are not one answer a hundred times")

        def wrong(answers: list[str]) -> list[str]:
            command = [python, "-c", VALIDATE, schema]
            lines = "".join(f"{json.dumps(json.loads(answer))}\n" for answer in answers)
            ended = subprocess.run(
                command, input=lines, capture_output=True, text=True, check=False
            )
            self.assertEqual(ended.returncode, 0, ended.stderr)
            return ended.stdout.splitlines()

        self.assertEqual(wrong(texts), [""] * 100)
        bad = json.loads(texts[0])
        bad["books"][0]["pages"] = 0
        self.assertIn("less than the minimum", wrong([json.dumps(bad)])[0])

    def test_layouts_do_not_matter(self) -> None:
        shape = {"schema": "schema.json"}
        wanted = self.job("one", shape, generation={"max_new_tokens": 200})
        self.run_job(wanted, 1)
        self.assertGreater(len(set(self.texts(self.results(wanted)))), 6)
        heads = {"sp": 2, "cp": 1}
        cases: tuple[tuple[str, int, dict[str, Any]], ...] = (
            ("ring", 3, {}),
            ("weights", 2, {"parallel": {"tp": 2, "cp": 1}}),
            ("short lists", 2, {"parallel": {"tp": 2, "cp": 1}, "generation": {"top_k": 3}}),
            ("heads", 2, {"parallel": heads}),
            ("ring of heads", 4, {"parallel": {"sp": 2, "cp": 2, "prefill": "usp"}}),
            ("heads and weights", 4, {"parallel": {**heads, "tp": 2, "prefill": "sp_tp"}}),
            ("shift", 2, {"parallel": {**heads, "decode": "shift", "shift_threshold": 4}}),
            ("chunked", 2, {"batch": {"policy": "chunked", "max_batch_tokens": 16}}),
            ("the same bits", 2, {"reproducible": "layout", "batch": {"max_batch_tokens": 16}}),
            ("teams", 2, {"parallel": {"cp": "elastic"}}),
            ("drafts", 2, {"generation": {"drafts": 8}}),
            ("drafts of teams", 2, {"generation": {"drafts": 8}, "parallel": {"cp": "elastic"}}),
            ("replicas", 2, {"parallel": {"dp": 2}}),
        )
        for name, ranks, sections in cases:
            with self.subTest(name):
                generation = {"max_new_tokens": 200, **sections.pop("generation", {})}
                expected = wanted
                if generation.keys() - {"max_new_tokens", "drafts"}:
                    expected = self.job("like", shape, generation=generation)
                    self.run_job(expected, 1)
                job = self.job("job", shape, generation=generation, **sections)
                self.run_job(job, ranks, "--fresh")
                found = self.results(job)
                self.assertEqual(len(found.rows(DONE)), 12)
                self.assert_same_answers(found, self.results(expected), found.rows(DONE))

    def test_experts_on_several_ranks_do_not_matter(self) -> None:
        shutil.rmtree(self.model)
        shutil.copytree(MODEL.parent / "qwen3moe-raw-step2", self.model)
        self.tokenizer.save(str(self.model / "tokenizer.json"))
        shape = {"schema": "schema.json"}
        generation = {"max_new_tokens": 200}
        wanted = self.job("one", shape, generation=generation)
        self.run_job(wanted, 1)
        for parallel in ({"tp": 2, "ep": 2, "cp": 1}, {"sp": 2, "ep": 2, "cp": 1}):
            with self.subTest(**parallel):
                job = self.job("experts", shape, generation=generation, parallel=parallel)
                self.run_job(job, 2, "--fresh")
                self.assertEqual(self.report(job)["grid"]["ep"], 2)
                found = self.results(job)
                self.assertEqual(len(found.rows(DONE)), 12)
                self.assert_same_answers(found, self.results(wanted), found.rows(DONE))

    def test_a_stopped_run_goes_on_in_the_shape(self) -> None:
        shape = {"regex": "([a-c]{9}-){60}"}
        more = {"generation": {"max_new_tokens": 700}, "batch": {"max_sequences": 2}}
        wanted = self.job("whole", shape, **dict(more))
        self.run_job(wanted, 1)
        job = self.job("stopped", shape, **dict(more))
        launch = self.start(job, 2, together=True)
        wait_for("all ranks", lambda: len(launch.ranks()) == 2)
        results = self.output(job) / "results.h5"
        wait_for("its results", results.exists)
        wait_for_state(results, int(self.first_row_of(wanted)), DONE)
        launch.signal_ranks(signal.SIGTERM)
        self.end(launch, DRAINED)
        self.run_job(job, 1)
        found = self.results(job)
        self.assertEqual(found.rows(DONE), list(range(12)))
        self.assert_same_answers(found, self.results(wanted), found.rows(DONE))

    def first_row_of(self, job: Path) -> int:
        """The row that a run answers first: it has the longest prompt."""
        return int(self.results(job)["prompt_tokens"].argmax())

    def test_what_cannot_be_is_refused_by_name(self) -> None:
        cases = (
            ({"regex": "(a"}, "no grammar can be made of"),
            ({"schema": "absent.json"}, "absent.json cannot be read"),
            ({"regex": "a", "choice": ["b"]}, "several of schema, regex and choice"),
            ({"regex": "a", "ignore_eos": True}, "generation.ignore_eos with schema"),
            ({"regex": "a", "stop": ["b"]}, "generation.stop with schema"),
        )
        for shape, words in cases:
            with self.subTest(shape=shape):
                self.assertIn(words, self.run_job(self.job("job", shape), 1, expect=REFUSED))


if __name__ == "__main__":
    unittest.main()
