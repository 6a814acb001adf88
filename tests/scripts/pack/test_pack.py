# SPDX-License-Identifier: Apache-2.0
import contextlib
import hashlib
import io
import json
import subprocess
import sys
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
from tokenizers import Tokenizer

from pecia_tools.command import UserError
from pecia_tools.model_folder import ModelFolder
from pecia_tools.pack import main as pack
from pecia_tools.pack.sources import good_sources
from support import (
    BOS,
    CHATML,
    IM_END,
    IM_START,
    PROSE,
    ScriptTest,
    make_model,
    make_tokenizer,
    quietly,
    read_turns,
)

USER, ANSWER = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"


class PackTest(ScriptTest):
    tokenizer = make_tokenizer()

    def setUp(self) -> None:
        super().setUp()
        self.model = make_model(self.folder / "tiny")
        self.shard = self.folder / "out.h5"

    def pack(self, *arguments: object, code: int = 0) -> str:
        found, out, err = quietly(
            pack.main, "--model", self.model, "--output", self.shard, *arguments
        )
        self.assertEqual((found, out), (code, ""))
        return err

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def left_in_folder(self) -> list[str]:
        return sorted(p.name for p in self.folder.iterdir() if p.suffix in (".h5", ".tmp"))


class Documents(PackTest):
    def test_instruction_stands_after_the_text(self) -> None:
        self.pack(self.write("a.txt", "The text {x}.\n"), "--instruction", "Count {name}.")
        self.assertEqual(
            read_turns(self.shard),
            {"a": [self.encode(f"{USER}The text {{x}}.\n\nCount {{name}}.{ANSWER}")]},
        )

    def test_template_fills_its_places_once(self) -> None:
        template = self.write("t", "{name}: {{{text}}}\n")
        self.pack(self.write("a.txt", "has {name}"), "--template", template, "--system", "Short.")
        text = f"<|im_start|>system\nShort.<|im_end|>\n{USER}a: {{has {{name}}}}{ANSWER}"
        self.assertEqual(read_turns(self.shard), {"a": [self.encode(text)]})

    def test_formulas_and_braces_of_a_document_stay_as_they_are(self) -> None:
        text = (
            r"Since $a_b*c$ and \(x^{2}_{text}\), $$\frac{name}{{x}}$$ and \[\sum_{i} i*i_*\] hold: "
            "{{ messages }} {% raw %}{text}{% endraw %} {column}"
        )
        template = self.write("t", "{{{name}}}: {text}")
        for name in ("a.md", "a.txt"):
            self.pack(self.write(name, text), "--template", template, "--force")
            expected = {"a": [self.encode(f"{USER}{{a}}: {text}{ANSWER}")]}
            self.assertEqual(read_turns(self.shard), expected)

    def test_plain_prompt_has_the_tokenizers_own_bos(self) -> None:
        self.pack(self.write("a.txt", "Every rank"), "--no-chat")
        self.assertEqual(read_turns(self.shard), {"a": [[BOS, *self.encode("Every rank")]]})

    def test_chat_prompt_has_only_what_the_template_writes(self) -> None:
        self.pack(self.write("a.txt", "Every rank"))
        self.assertEqual(read_turns(self.shard)["a"][0][0], IM_START)

    def test_stdin_and_folder_in_the_order_given(self) -> None:
        self.write("docs/z.txt", "z")
        self.write("docs/sub/y.md", "y")
        stdin = mock.Mock(buffer=io.BytesIO(b"from stdin"))
        with mock.patch.object(sys, "stdin", stdin):
            self.pack("-", self.folder / "docs")
        self.assertEqual(list(read_turns(self.shard)), ["stdin", "sub/y", "z"])

    def test_attributes(self) -> None:
        self.pack(self.write("a.txt", "x"))
        digest = hashlib.sha256((self.model / "tokenizer.json").read_bytes()).hexdigest()
        with h5py.File(self.shard) as file:
            self.assertEqual(file.attrs["schema"], "pecia.prompts/1")
            self.assertEqual(file.attrs["tokenizer_sha256"], digest)
            self.assertEqual(file.attrs["vocab_size"], self.tokenizer.get_vocab_size())
            self.assertEqual(file.attrs["followup"], "chain")
            self.assertIn("pecia-pack", file.attrs["created_by"])
            self.assertEqual(
                sorted(file), ["request_id", "request_offsets", "tokens", "turn_offsets"]
            )
            self.assertEqual(h5py.check_string_dtype(file["request_id"].dtype).length, 1)

    def test_more_tokens_than_a_chunk(self) -> None:
        text = "".join(np.random.default_rng(3).choice(list("abcdefg .\n"), 150_000)).strip()
        with mock.patch("pecia_tools.pack.prompts.BATCH_CHARACTERS", 100_000):
            self.pack(self.write("a.txt", text), self.write("b.txt", "b"), "--no-chat")
        self.assertEqual(
            read_turns(self.shard),
            {"a": [[BOS, *self.encode(text)]], "b": [[BOS, *self.encode("b")]]},
        )

    def test_parts_are_numbered(self) -> None:
        self.pack(self.write("a.txt", PROSE * 4), self.write("b.txt", "b"), "--split-tokens", 40)
        names = list(read_turns(self.shard))
        self.assertEqual(names, [f"a#{n:03d}" for n in range(1, len(names))] + ["b"])
        self.assertGreater(len(names), 3)

    def test_parts_know_their_book_title_and_position(self) -> None:
        book = f"A book.\n\nChapter 1\n\n{PROSE}Chapter 2\n\n{PROSE}".strip()
        template = self.write("t", "{book}, {title}, {part}/{parts}, {name}: {text}")
        self.pack(
            *(self.write("a.txt", book), self.write("b.txt", "# B\n\nb")),
            *("--split-at", "chapter", "--template", template, "--no-chat"),
        )
        prefixes = ["a, , 1/3, a#001: A book.", "a, Chapter 1, 2/3, a#002: Chapter 1\n\nThe ring"]
        turns = read_turns(self.shard)
        for name, prefix in zip(turns, prefixes):
            self.assertTrue(self.tokenizer.decode(turns[name][0]).startswith(prefix), name)
        self.assertEqual(self.tokenizer.decode(turns["b"][0]), "b, B, 1/1, b: # B\n\nb")
        with h5py.File(self.shard) as file:
            self.assertEqual(file["book"][:].tolist(), [b"a", b"a", b"a", b"b"])
            self.assertEqual(file["title"][:].tolist(), [b"", b"Chapter 1", b"Chapter 2", b"B"])
            self.assertEqual(file["part"].dtype, np.int32)
            self.assertEqual(file["part"][:].tolist(), [[1, 3], [2, 3], [3, 3], [1, 1]])
            self.assertEqual((file["span"].dtype, file["book_tokens"].dtype), ("int64", "int64"))
            spans = file["span"][:]
            self.assertEqual(spans[1:3, 0].tolist(), spans[:2, 1].tolist())
            self.assertEqual(spans[[0, 3], 0].tolist(), [0, 0])
            size = len(self.encode(book))
            self.assertEqual(spans[2, 1], size)
            self.assertEqual(file["book_tokens"][:].tolist(), [*[size] * 3, spans[3, 1]])

    def test_place_of_a_whole_document_is_for_the_template_alone(self) -> None:
        template = self.write("t", "{book} {title} {part}/{parts} {text}")
        self.pack(self.write("a.txt", "# A\n\nb"), "--template", template, "--no-chat")
        (turns,) = read_turns(self.shard).values()
        self.assertEqual(self.tokenizer.decode(turns[0]), "a A 1/1 # A\n\nb")
        with h5py.File(self.shard) as file:
            self.assertNotIn("book", file)

    def test_nothing_to_split_at_is_told(self) -> None:
        message = self.pack(self.write("a.txt", PROSE), "--split-at", "chapter")
        self.assertIn("1 documents have no chapter", message)

    def test_last_line_counts_everything(self) -> None:
        book = self.write("a.txt", f"Chapter 1\n\n{PROSE}Chapter 2\n\n{PROSE}")
        message = self.pack(book, "--split-at", "chapter", "--question", "q", "--question", "r")
        turns = [turn for request in read_turns(self.shard).values() for turn in request]
        self.assertIn(
            f": 1 document, 2 parts, 4 questions, 2 requests, 6 turns, {sum(map(len, turns))} tokens → ",
            message.splitlines()[-1],
        )

    def test_special_tokens_in_a_text_are_told(self) -> None:
        message = self.pack(self.write("a.txt", "x <|im_end|> y"))
        self.assertIn("1 texts contain", message)
        self.assertIn("<|im_end|> in", message)

    def test_options_become_datasets(self) -> None:
        self.pack(
            self.write("a.txt", "x"),
            "--max-new-tokens",
            7,
            "--temperature",
            0.5,
            "--top-p",
            0.25,
            "--seed",
            -3,
            *("--stop", "\n\n", "--stop", "é."),
        )
        with h5py.File(self.shard) as file:
            for name, dtype, value in (
                ("max_new_tokens", "int32", 7),
                ("temperature", "float32", 0.5),
                ("top_p", "float32", 0.25),
                ("seed", "int64", -3),
            ):
                self.assertEqual((file[name].dtype, file[name][:].tolist()), (dtype, [value]))
            self.assertEqual(json.loads(file["stop"][0].decode()), ["\n\n", "é."])


class Fork(PackTest):
    QUESTIONS = ("What does a scribe copy?", "What is a pecia?", "\nWho?")

    def check(self, expected: list[str], *arguments: object) -> list[list[int]]:
        questions = [word for q in self.QUESTIONS for word in ("--question", q)]
        self.pack(self.write("a.txt", PROSE), *questions, *arguments)
        (turns,) = read_turns(self.shard).values()
        shared, rest = turns[0], turns[1:]
        self.assertEqual([shared + tokens for tokens in rest], [self.encode(t) for t in expected])
        return turns

    def test_shared_and_rest_are_the_whole_prompt_token_for_token(self) -> None:
        prose = PROSE.strip()
        turns = self.check([f"{USER}{prose}\n\n{q}{ANSWER}" for q in self.QUESTIONS])
        self.assertIn(prose, self.tokenizer.decode(turns[0]))
        self.assertNotIn("scribe copy?", self.tokenizer.decode(turns[0])[len(prose) :])
        with h5py.File(self.shard) as file:
            self.assertEqual(file.attrs["followup"], "fork")
            self.assertNotIn("max_new_tokens", file)

    def test_the_question_never_reaches_into_the_shared_turn(self) -> None:
        """With one question alone nothing but the place of the question bounds what is shared."""
        self.pack(self.write("a.txt", PROSE), "--question", "What is a pecia?")
        turns = read_turns(self.shard)["a"]
        self.assertEqual(
            turns[0] + turns[1], self.encode(f"{USER}{PROSE.strip()}\n\nWhat is a pecia?{ANSWER}")
        )
        self.assertTrue(self.tokenizer.decode(turns[1]).lstrip().startswith("What is a pecia?"))

    def test_long_document_is_encoded_once_and_gives_the_same_tokens(self) -> None:
        """The question takes part in the document's last words, so that the shared turn must end before."""
        text = (PROSE * 60).strip() + " Who copies bo"
        template = self.write("t", "{text}{question} Say it.")
        questions = ["oks?", "ats?", "", "th the ring and the keys?", "\n\nbooks"]
        words = [word for q in questions for word in ("--question", q)]
        encoded: list[str] = []
        encode = Tokenizer.encode_batch

        class Counting:
            def __init__(self, tokenizer: Tokenizer) -> None:
                self._tokenizer = tokenizer

            def __getattr__(self, name: str) -> object:
                return getattr(self._tokenizer, name)

            def encode_batch(self, texts: list[str], **options: bool) -> object:
                encoded.extend(texts)
                return encode(self._tokenizer, texts, **options)

        model = ModelFolder(self.model)
        model.tokenizer = Counting(model.tokenizer)
        with mock.patch("pecia_tools.pack.main.ModelFolder", return_value=model):
            self.pack(self.write("a.txt", text), "--template", template, "--no-chat", *words)
        turns = read_turns(self.shard)["a"]
        for rest, question in zip(turns[1:], questions):
            self.assertEqual(turns[0] + rest, [BOS, *self.encode(f"{text}{question} Say it.")])
        self.assertLess(sum(map(len, encoded)), 2 * len(text))

    def test_end_that_goes_otherwise_alone_is_encoded_in_full(self) -> None:
        """Without a place to cut, the end of the document is other tokens than in its surroundings."""
        with (
            mock.patch("pecia_tools.pack.prompt_kinds.SHARED_TAIL", 40),
            mock.patch("pecia_tools.pack.prompt_kinds.SAME_TOKENS", 10**6),
        ):
            self.test_shared_and_rest_are_the_whole_prompt_token_for_token()

    def test_only_questions_generate(self) -> None:
        self.pack(
            self.write("a.txt", PROSE), "--question", "a", "--question", "b", "--max-new-tokens", 5
        )
        with h5py.File(self.shard) as file:
            self.assertEqual(file["max_new_tokens"][:].tolist(), [0, 5, 5])

    def test_template_with_a_question(self) -> None:
        template = self.write("t", "Read: {text}\nQ: {question}\nA:")
        self.check(
            [f"{USER}Read: {PROSE.strip()}\nQ: {q}\nA:{ANSWER}" for q in self.QUESTIONS],
            "--template",
            template,
        )

    def test_without_a_chat_template_the_bos_is_shared(self) -> None:
        self.pack(
            self.write("a.txt", PROSE), "--no-chat", "--question", "Who?", "--question", "Why?"
        )
        shared, *rest = read_turns(self.shard)["a"]
        whole = [[BOS, *self.encode(f"{PROSE.strip()}\n\n{q}")] for q in ("Who?", "Why?")]
        self.assertEqual([shared + tokens for tokens in rest], whole)

    def test_lines_with_questions_of_their_own(self) -> None:
        turns = [PROSE, {"prompt": "Who?", "max_new_tokens": 3}, "Why?"]
        lines = self.write_lines("in.jsonl", {"id": "a", "turns": turns, "max_new_tokens": 8})
        self.pack(lines, "--fork", "--system", "Short.")
        shared, *rest = read_turns(self.shard)["a"]
        before = f"<|im_start|>system\nShort.<|im_end|>\n{USER}{PROSE}\n\n"
        whole = [self.encode(f"{before}{q}{ANSWER}") for q in ("Who?", "Why?")]
        self.assertEqual([shared + tokens for tokens in rest], whole)
        with h5py.File(self.shard) as file:
            self.assertEqual(file.attrs["followup"], "fork")
            self.assertEqual(file["max_new_tokens"][:].tolist(), [0, 3, 8])

    def test_fork_without_questions_is_refused(self) -> None:
        for line in ({"id": "a", "turns": ["x"]}, {"id": "a", "prompt": "x"}):
            lines = self.write_lines("in.jsonl", line)
            self.assert_refused("in.jsonl:1", "--fork", call=lambda p=lines: self.pack(p, "--fork"))

    def test_question_before_the_text_is_refused(self) -> None:
        template = self.write("t", "{question}\n{text}")
        self.assert_refused(
            "{question} must come after {text}",
            call=lambda: self.pack(
                self.write("a.txt", "x"), "--question", "q", "--template", template
            ),
        )


class Turns(PackTest):
    def test_chain_goes_on_after_the_answers_stop_token(self) -> None:
        """Feeding turn, answer and turn gives what the template makes of the whole conversation."""
        self.pack(self.write_lines("in.jsonl", {"id": "c", "turns": ["One?", "Two?", "Three?"]}))
        turns = read_turns(self.shard)["c"]
        answers = [[*self.encode("First. "), IM_END], [*self.encode("Second"), IM_END], []]
        fed = [token for turn, answer in zip(turns, answers) for token in turn + answer]
        whole = f"{USER}One?{ANSWER}First. <|im_end|>\n{USER}Two?{ANSWER}"
        whole += f"Second<|im_end|>\n{USER}Three?{ANSWER}"
        self.assertEqual(fed, self.encode(whole))

    def test_end_that_is_no_stop_token_is_refused(self) -> None:
        make_model(self.model, CHATML, eos=2)
        lines = self.write_lines("in.jsonl", {"id": "c", "turns": ["One?", "Two?"]})
        self.assert_refused(
            "in.jsonl:1", "'<|im_end|>", "[2]", "eos_token_id", call=lambda: self.pack(lines)
        )

    def test_plain_turns_are_verbatim_with_one_bos(self) -> None:
        self.pack(
            self.write_lines("in.jsonl", {"id": "c", "turns": ["One?", " Two?"]}), "--no-chat"
        )
        self.assertEqual(
            read_turns(self.shard)["c"], [[BOS, *self.encode("One?")], self.encode(" Two?")]
        )

    def test_batch_form(self) -> None:
        messages = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ]
        self.pack(
            self.write_lines(
                "in.jsonl",
                {
                    "custom_id": "r",
                    "url": "/v1/chat/completions",
                    "body": {"model": "org/tiny", "messages": messages, "max_tokens": 4},
                },
            )
        )
        text = f"{USER}a{ANSWER}b<|im_end|>\n{USER}c{ANSWER}"
        self.assertEqual(read_turns(self.shard), {"r": [self.encode(text)]})

    def test_arrival_times(self) -> None:
        self.pack(
            self.write_lines(
                "in.jsonl",
                {"id": "a", "prompt": "x", "arrival_s": 0},
                {"id": "b", "prompt": "y", "arrival_s": 1.5},
            )
        )
        with h5py.File(self.shard) as file:
            self.assertEqual(file["arrival_s"][:].tolist(), [0, 1.5])


class LinesThatDiffer(PackTest):
    def test_what_a_line_does_not_say_is_left_to_the_job(self) -> None:
        full = {"max_tokens": 4, "temperature": 0.5, "top_p": 0.25, "seed": 7, "stop": "."}
        self.pack(
            self.write_lines(
                "in.jsonl",
                {"id": "a", "prompt": "x", **full, "arrival_s": 2.5},
                {"id": "b", "prompt": "y"},
                {"id": "c", "turns": ["z", {"prompt": "w", "stop": []}]},
            )
        )
        with h5py.File(self.shard) as file:
            self.assertEqual(file["max_new_tokens"][:].tolist(), [4, -1, -1, -1])
            for name, value in (("temperature", 0.5), ("top_p", 0.25)):
                self.assertEqual(file[name][0], value)
                self.assertTrue(np.isnan(file[name][1:]).all())
            self.assertEqual(file["seed"][:].tolist(), [7, *[-(2**63)] * 3])
            self.assertEqual(file["stop"][:].tolist(), [b'["."]', b"", b"", b"[]"])
            self.assertEqual(file["arrival_s"][:].tolist(), [2.5, 0, 0])

    def test_what_no_line_says_is_not_there(self) -> None:
        self.pack(self.write_lines("in.jsonl", {"id": "a", "prompt": "x", "stop": None}))
        with h5py.File(self.shard) as file:
            self.assertEqual(
                sorted(file), ["request_id", "request_offsets", "tokens", "turn_offsets"]
            )


class Choices(PackTest):
    def test_requests_of_their_own_with_seeds_of_their_own(self) -> None:
        self.pack(
            self.write_lines(
                "in.jsonl",
                {"id": "a", "prompt": "x", "n": 3, "seed": 2**63 - 2},
                {"id": "b", "turns": ["y", "z"]},
                {"id": "c", "prompt": "w", "n": 2},
            )
        )
        turns = read_turns(self.shard)
        self.assertEqual(list(turns), ["a~1", "a~2", "a~3", "b", "c~1", "c~2"])
        self.assertEqual(turns["a~1"], turns["a~3"])
        with h5py.File(self.shard) as file:
            self.assertEqual(file["custom_id"][:].tolist(), [b"a", b"a", b"a", b"b", b"c", b"c"])
            self.assertEqual(file["choice"].dtype, np.int32)
            self.assertEqual(
                file["choice"][:].tolist(), [[0, 3], [1, 3], [2, 3], [0, 1], [0, 2], [1, 2]]
            )
            none = -(2**63)
            self.assertEqual(
                file["seed"][:].tolist(),
                [2**63 - 2, 2**63 - 1, -(2**63) + 1, none, none, none, none],
            )

    def test_one_choice_needs_no_datasets(self) -> None:
        self.pack(self.write_lines("in.jsonl", {"id": "a", "prompt": "x", "n": 1}))
        with h5py.File(self.shard) as file:
            self.assertNotIn("choice", file)
            self.assertNotIn("custom_id", file)

    def test_name_of_a_choice_that_another_request_has(self) -> None:
        lines = self.write_lines(
            "in.jsonl", {"id": "a~2", "prompt": "x"}, {"id": "a", "prompt": "x", "n": 2}
        )
        self.assert_refused("in.jsonl:2", "'a~2'", "in.jsonl:1", call=lambda: self.pack(lines))


class Completions(PackTest):
    def line(self, name: str, prompt: object) -> dict[str, object]:
        return {"custom_id": name, "url": "/v1/completions", "body": {"prompt": prompt}}

    def test_text_without_template_and_tokens_as_they_are(self) -> None:
        chat = {"messages": [{"role": "user", "content": "x"}]}
        self.pack(
            self.write_lines(
                "in.jsonl",
                self.line("text", " Every rank"),
                self.line("tokens", [7, 8, 9]),
                {"custom_id": "chat", "url": "/v1/chat/completions", "body": chat},
                {"id": "plain", "prompt": "x"},
            )
        )
        turns = read_turns(self.shard)
        self.assertEqual(turns["text"], [[BOS, *self.encode(" Every rank")]])
        self.assertEqual(turns["tokens"], [[7, 8, 9]])
        self.assertEqual(turns["chat"], turns["plain"])
        with h5py.File(self.shard) as file:
            self.assertEqual(
                file["endpoint"][:].tolist(),
                [b"/v1/completions", b"/v1/completions", b"/v1/chat/completions", b""],
            )

    def test_what_is_for_documents_or_messages_is_refused(self) -> None:
        lines = self.write_lines("in.jsonl", self.line("a", "x"))
        for options in (["--instruction", "i"], ["--system", "s"], ["--fork"]):
            self.assert_refused(
                "in.jsonl:1: ", options[0], call=lambda o=options: self.pack(lines, *o)
            )


class BadInputs(PackTest):
    def setUp(self) -> None:
        super().setUp()
        self.write("docs/a.txt", "good")
        self.write("docs/b.txt", b"caf\xe9")
        self.write("docs/c.txt", " \n")
        self.write("docs/d.txt", "also good")
        self.lines = self.write(
            "in.jsonl", '{"id": "a", "prompt": "x"}\n{"id": 3}\n{"id": "e", "prompt": "y"}\n'
        )
        self.inputs = (self.folder / "docs", self.lines, self.folder / "absent.txt")

    def test_all_are_found_before_anything_is_tokenized(self) -> None:
        with mock.patch("pecia_tools.pack.main.encode") as encode:
            self.assert_refused(
                "5 of 8 documents",
                "b.txt: byte 3 (0xe9) is not utf-8\n",
                "c.txt: the document is empty\n",
                "in.jsonl:1: the name 'a' is taken by",
                "in.jsonl:2:2: key 'id' must be a string",
                "absent.txt: no such file",
                "leave them out by packing without --strict. Bytes that are no text: name the --encoding",
                call=lambda: self.pack(*self.inputs, "--strict"),
            )
            encode.assert_not_called()
        self.assertEqual(self.left_in_folder(), [])

    def test_one_is_one_line(self) -> None:
        with self.assertRaises(UserError) as caught:
            self.pack(self.write("x.txt", b"\xff"))
        self.assertEqual(len(str(caught.exception).splitlines()), 1)
        self.assertIn("--encoding-errors replace", str(caught.exception))
        with self.assertRaises(UserError) as caught:
            self.pack(self.write("x.jsonl", '{"id": "a", "prompt": "x", "n": 0}'))
        self.assertNotIn("--encoding", str(caught.exception))

    def test_bad_ones_stop_no_other_and_are_listed(self) -> None:
        message = self.pack(*self.inputs, code=3)
        self.assertEqual(list(read_turns(self.shard)), ["a", "d", "e"])
        skipped = self.folder / "out.h5.skipped.txt"
        self.assertIn(f"skipped 5, listed in {skipped}", message)
        rows = [line.split("\t") for line in skipped.read_text().splitlines()]
        self.assertEqual(
            [Path(where).name for where, _ in rows],
            ["b.txt", "c.txt", "in.jsonl:1", "in.jsonl:2:2", "absent.txt"],
        )
        self.assertEqual(rows[1][1], "the document is empty")
        self.assertIn("Bytes that are no text: name the --encoding", message)
        before = self.shard.read_bytes()
        self.pack(*self.inputs, "--skip-bad", "--force", code=3)
        self.assertEqual(self.shard.read_bytes(), before)
        self.pack(self.folder / "docs/a.txt", "--force")
        self.assertFalse(skipped.exists())

    def test_single_file_is_packed_in_part_only_where_that_is_asked_for(self) -> None:
        for more in ((), ("--strict",)):
            self.assert_refused(
                *("in.jsonl:2:2", "leave it out with --skip-bad"),
                call=lambda more=more: self.pack(self.lines, *more),
            )
        self.pack(self.lines, "--skip-bad", code=3)
        self.assertEqual(list(read_turns(self.shard)), ["a", "e"])

    def test_strict_and_skip_bad_exclude_each_other(self) -> None:
        with self.assertRaises(SystemExit) as caught:
            self.pack(*self.inputs, "--strict", "--skip-bad")
        self.assertEqual(caught.exception.code, 2)

    def test_lines_that_the_chat_template_or_fork_refuses(self) -> None:
        refusing = "{% if messages[0].content[0] == 'b' %}{{ raise_exception('no b') }}{% endif %}"
        make_model(self.model, refusing + CHATML)
        lines = self.write_lines(
            "in.jsonl",
            *({"id": name, "turns": [name, "?"]} for name in "abc"),
            {"id": "d", "turns": ["d"]},
        )
        self.assert_refused("in.jsonl:2: ", "no b", call=lambda: self.pack(lines))
        message = self.pack(lines, "--skip-bad", "--fork", code=3)
        self.assertEqual(list(read_turns(self.shard)), ["a", "c"])
        self.assertIn("in.jsonl:4: --fork needs a document", message)

    def test_nothing_left(self) -> None:
        for more, files in (
            (("--skip-bad",), ("docs/b.txt",)),
            ((), ("docs/b.txt", "docs/c.txt")),
        ):
            self.assert_refused(
                *("b.txt: byte 3 (0xe9) is not utf-8", "Correct ", "--encoding"),
                call=lambda more=more, files=files: self.pack(
                    *(self.folder / name for name in files), *more
                ),
            )
        self.assertEqual(self.left_in_folder(), [])

    def test_what_changes_after_the_first_look_is_refused(self) -> None:
        path = self.folder / "docs/a.txt"

        def change(*arguments: object, **named: object) -> object:
            path.write_bytes(b"\xff")
            return mock.DEFAULT

        with mock.patch("pecia_tools.pack.main.good_sources", side_effect=change, wraps=good_sources):
            self.assert_refused("a.txt: byte 0", call=lambda: self.pack(path, "--skip-bad"))

    def test_encoding_and_what_was_repaired_is_told(self) -> None:
        self.pack(self.folder / "docs/b.txt", "--encoding", "cp1252", "--no-chat")
        self.assertEqual(read_turns(self.shard), {"b": [[BOS, *self.encode("café")]]})
        self.write("w.txt", b"a\r\nb\xff\xfe")
        message = self.pack(
            *(self.folder / "w.txt", "--encoding-errors", "replace", "--force", "--no-chat")
        )
        self.assertEqual(read_turns(self.shard), {"w": [[BOS, *self.encode("a\nb\ufffd\ufffd")]]})
        self.assertIn("w.txt: replaced 2 bytes that are not utf-8", message)
        self.assertIn("line ends became LF: 1 of 1 files were CR LF or CR", message)

    def test_limit_counts_documents_and_lines_in_order(self) -> None:
        message = self.pack(*(self.folder / "docs/a.txt", self.lines, "--limit", 1), "--no-chat")
        self.assertEqual(list(read_turns(self.shard)), ["a"])
        self.assertIn("--limit 1: ", message)
        message = self.pack(self.folder / "docs/a.txt", "--limit", 1, "--force")
        self.assertNotIn("--limit", message)

    def test_exit_code_is_two(self) -> None:
        for arguments in (
            ["--model", self.model, "--output", self.shard, "--strict", *self.inputs],
            ["--model", self.model, "--output", self.shard, "--encoding", "no-such", "-"],
            [
                "--model",
                self.model,
                "--output",
                self.shard,
                "--template",
                self.folder / "docs/b.txt",
                "-",
            ],
            ["--no-such-option"],
        ):
            ended = subprocess.run(
                [sys.executable, "-m", "pecia_tools.pack.main", *map(str, arguments)],
                capture_output=True,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
            )
            self.assertEqual((ended.returncode, ended.stdout), (2, ""), ended.stderr)
            self.assertNotIn("Traceback", ended.stderr)


class LeftOut(PackTest):
    def test_last_line_counts_what_folders_have_besides(self) -> None:
        for name in ("a.txt", "1.png", "2.png", "x.xlsx", "deep/LICENSE", ".hidden"):
            self.write(f"docs/{name}", "x")
        said = self.pack(self.folder / "docs")
        self.assertIn("left out: 2 .png, 1 .xlsx, 1 without a suffix. --glob takes", said)
        self.assertTrue(
            said.endswith("out.h5; left out: 2 .png, 1 .xlsx, 1 without a suffix\n"), said
        )
        self.assertNotIn("left out", self.pack(self.folder / "docs/a.txt", "--force"))

    def test_document_of_another_kind_is_skipped_by_name(self) -> None:
        for name in ("a.txt", "b.odt", "c.rtf"):
            self.write(f"docs/{name}", "x")
        said = self.pack(self.folder / "docs", code=3)
        self.assertIn(
            "b.odt: is an OpenDocument text, which is not read. Convert it with libre", said
        )
        self.assertTrue(said.endswith("out.h5; left out: 2 skipped\n"), said)
        listed = (self.folder / "out.h5.skipped.txt").read_text()
        self.assertIn("c.rtf\tis an RTF document", listed)
        self.assert_refused(
            "c.rtf", call=lambda: self.pack(self.folder / "docs", "--strict", "--force")
        )

    def test_largest_file(self) -> None:
        documents = self.write("a.txt", "x" * 100), self.write("b.txt", "x")
        said = self.pack(*documents, "--max-file-bytes", 99, code=3)
        self.assertIn("a.txt: has more than 99 bytes, decompressed. pecia-pack --max-file-bytes", said)
        self.pack(*documents, "--max-file-bytes", 100, "--force")


class TemplatesThatFail(PackTest):
    def pack_with(self, template: str, *arguments: object, code: int = 0) -> str:
        make_model(self.model, template)
        documents = (
            self.write("a.txt", "good"),
            self.write("b.txt", "bad"),
            self.write("c.txt", "c"),
        )
        return self.pack(*documents, *arguments, code=code)

    def test_document_that_the_template_refuses_or_never_ends_with_is_skipped(self) -> None:
        loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
        for what, says in (
            ("{{ raise_exception('no bad words') }}", "refuses these messages: no bad words"),
            (loop, "does not end: it took 0.2 s"),
            ("{{ 1 // 0 }}", "ZeroDivisionError"),
            ("{{ range(10 ** 9) }}", "Range too big"),
        ):
            with self.subTest(what), mock.patch("pecia_tools.pack.chat.RENDER_LIMIT_S", 0.2):
                template = "{% if 'bad' in messages[0].content %}" + what + "{% endif %}" + CHATML
                said = self.pack_with(template, "--force", code=3)
                self.assertEqual(list(read_turns(self.shard)), ["a", "c"])
                self.assertIn("b.txt: the chat template of", said)
                self.assertIn(says, said)
                self.assertIn("2 documents, 2 requests", said)

    def test_strict_and_nothing_left(self) -> None:
        bad = "{{ raise_exception('no') }}"
        self.assert_refused("a.txt: ", ": no", call=lambda: self.pack_with(bad, "--strict"))
        self.assert_refused(
            *("no request is left", "a.txt: ", "c.txt: "), call=lambda: self.pack_with(bad)
        )
        self.assertEqual(self.left_in_folder(), [])


class ModelLength(PackTest):
    def setUp(self) -> None:
        super().setUp()
        self.config = {"vocab_size": self.tokenizer.get_vocab_size()}
        self.document = self.write("a.txt", "x" * 20)
        self.size = len(self.encode("x" * 20)) + 1

    def pack_with(self, config: dict[str, object], *arguments: object) -> str:
        (self.model / "config.json").write_text(json.dumps({**self.config, **config}))
        return self.pack(self.document, "--no-chat", "--force", *arguments)

    def test_longer_prompts_are_told_and_packed(self) -> None:
        message = self.pack_with({"max_position_embeddings": self.size})
        self.assertIn("warning: 1 of 1 prompts", message)
        self.assertIn(f"'a' ({self.size})", message)
        for remedy in ("--split-tokens", "limits.over_length", "model.rope_scaling"):
            self.assertIn(remedy, message)
        self.assertEqual(list(read_turns(self.shard)), ["a"])
        self.assertNotIn("warning", self.pack_with({"max_position_embeddings": self.size + 1}))

    def test_refused_or_left_out_on_demand(self) -> None:
        config = {"max_position_embeddings": self.size}
        self.assert_refused(
            "a.txt", "model's length", call=lambda: self.pack_with(config, "--over-length", "error")
        )
        other = self.write("b.txt", "b")
        message = self.pack_with(config, other, "--over-length", "skip")
        self.assertEqual(list(read_turns(self.shard)), ["b"])
        self.assertIn(f"skipped 1, listed in {self.shard}.skipped.txt", message)

    def test_told_also_when_a_larger_limit_was_asked_for(self) -> None:
        message = self.pack_with({"max_position_embeddings": 8}, "--max-tokens", 1000)
        self.assertIn("the model's length of 8 tokens", message)

    def test_length_of_a_fork_is_that_of_its_longest_question(self) -> None:
        message = self.pack_with(
            {"max_position_embeddings": 8}, "--question", "a", "--question", "b c"
        )
        turns = read_turns(self.shard)["a"]
        longest = len(turns[0]) + max(len(turns[1]), len(turns[2]))
        self.assertIn(f"'a' ({longest})", message)

    def test_length_is_read_as_the_run_reads_it(self) -> None:
        for rope, length in (
            (None, 64),
            ({"rope_type": "default"}, 64),
            ({"rope_type": "linear", "factor": 4.0}, 256),
            ({"type": "dynamic", "factor": 1.5}, 96),
            ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8}, 64),
            ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}, 128),
            ({"type": "yarn", "factor": 4.0}, 256),
            ({"rope_type": "yarn", "original_max_position_embeddings": 16}, 64),
        ):
            for key in ("rope_scaling", "rope_parameters"):
                with self.subTest(rope=rope, key=key):
                    config = {"max_position_embeddings": 64, "vocab_size": 5, key: rope}
                    (self.model / "config.json").write_text(json.dumps(config))
                    self.assertEqual(ModelFolder(self.model).max_positions, length)
        chunks = {"chunk_size": 40, "local_size": 8}
        config = {"max_position_embeddings": 64, "dual_chunk_attention_config": chunks}
        (self.model / "config.json").write_text(json.dumps(config))
        self.assertEqual(ModelFolder(self.model).max_positions, 32)


class Shards(PackTest):
    def setUp(self) -> None:
        super().setUp()
        self.lines = self.write_lines(
            "in.jsonl", *({"id": str(n), "prompt": "x"} for n in range(5))
        )

    def test_requests_are_spread_in_order(self) -> None:
        self.pack(self.lines, "--shard-requests", 2)
        names = ["out-0001.h5", "out-0002.h5", "out-0003.h5"]
        self.assertEqual(self.left_in_folder(), names)
        self.assertEqual(
            [list(read_turns(self.folder / n)) for n in names], [["0", "1"], ["2", "3"], ["4"]]
        )

    def test_force_leaves_no_shard_of_a_longer_pack(self) -> None:
        self.pack(self.lines, "--shard-requests", 1)
        self.assert_refused(
            "out-0001.h5", "--force", call=lambda: self.pack(self.lines, "--shard-requests", 4)
        )
        self.pack(self.lines, "--shard-requests", 4, "--force")
        self.assertEqual(self.left_in_folder(), ["out-0001.h5", "out-0002.h5"])


class Refusals(PackTest):
    def refuse(self, *arguments: object, says: tuple[str, ...]) -> None:
        self.assert_refused(*says, call=lambda: self.pack(*arguments))
        self.assertEqual(self.left_in_folder(), [])

    def test_existing_file_is_kept(self) -> None:
        document = self.write("a.txt", "new")
        self.shard.write_text("old")
        self.assert_refused("out.h5", "--force", call=lambda: self.pack(document))
        self.assertEqual(self.shard.read_text(), "old")
        with mock.patch("pecia_tools.pack.main.survey") as survey:  # before the inputs are read
            self.assert_refused("--force", call=lambda: self.pack(document))
            survey.assert_not_called()
        self.pack(document, "--force")
        self.assertEqual(list(read_turns(self.shard)), ["a"])

    def test_same_name_twice(self) -> None:
        lines = self.write_lines("in.jsonl", {"id": "a", "prompt": "x"})
        self.refuse(
            *(self.write("a.txt", "x"), lines, "--strict"),
            says=("'a'", "a.txt", "in.jsonl:1"),
        )

    def test_failure_in_a_late_shard_leaves_none(self) -> None:
        lines = self.write_lines("in.jsonl", {"id": "a", "prompt": "x"}, {"id": "b", "prompt": ""})
        self.refuse(lines, "--shard-requests", 1, says=("in.jsonl:2", "'prompt' is empty"))

    def test_instruction_for_a_conversation(self) -> None:
        lines = self.write_lines("in.jsonl", {"id": "a", "turns": ["x"]})
        for option in (
            ("--instruction", "i"),
            ("--question", "q"),
            ("--split-tokens", 20),
            ("--split-at", "chapter"),
        ):
            self.refuse(lines, *option, says=("in.jsonl:1", option[0]))

    def test_options_that_exclude_each_other(self) -> None:
        document = self.write("a.txt", "x")
        self.refuse(document, "--question", "q", "--instruction", "i", says=("--question",))
        self.refuse(document, "--no-chat", "--system", "s", says=("--system",))
        self.refuse(document, "--overlap", 8, says=("--overlap needs",))
        self.refuse(document, "--overlap", 9, "--split-tokens", 16, says=("more than half",))
        self.refuse(document, "--over-length", "error", says=("max_position_embeddings",))

    def test_unknown_options(self) -> None:
        for option, hint in (
            ("--encodng=x", "; did you mean '--encoding'?\n"),
            ("--wombat", "--wombat\n"),
        ):
            with (
                self.subTest(option),
                self.assertRaises(SystemExit) as ended,
                contextlib.redirect_stderr(io.StringIO()) as message,
            ):
                pack.main([option])
            self.assertEqual(ended.exception.code, 2)
            self.assertTrue(message.getvalue().endswith(hint), message.getvalue())

    def test_inputs_may_stand_between_options(self) -> None:
        self.pack(self.write("a.txt", "x"), "--no-chat", self.write("b.txt", "y"))
        self.assertEqual(list(read_turns(self.shard)), ["a", "b"])

    def test_template_places(self) -> None:
        document = self.write("a.txt", "x")
        for template, problem in (
            ("{nam}{text}", "{nam}"),
            ("no place", "{text} must occur once"),
            ("{text} {", "literal brace"),
            ("{text} {titel}", "did you mean 'title'?"),
        ):
            self.refuse(document, "--template", self.write("t", template), says=("t: ", problem))

    def test_over_length(self) -> None:
        files = self.write("a.txt", PROSE), self.write("b.txt", "b")
        self.refuse(
            *files,
            "--max-tokens",
            30,
            says=("a.txt", "more than --max-tokens 30", "--split-tokens"),
        )
        message = self.pack(*files, "--max-tokens", 30, "--over-length", "skip")
        self.assertIn("skipped 1", message)
        self.assertIn("the prompt of 'a' has", message)
        self.assertEqual(list(read_turns(self.shard)), ["b"])

    def test_longest_prompt_that_fits(self) -> None:
        document = self.write("a.txt", "abc")
        size = len(self.encode("abc")) + 1
        self.pack(document, "--no-chat", "--max-tokens", size)
        self.shard.unlink()
        self.refuse(document, "--no-chat", "--max-tokens", size - 1, says=(f"has {size} tokens",))

    def test_tokenizer_larger_than_the_model(self) -> None:
        (self.model / "config.json").write_text(json.dumps({"vocab_size": 50}))
        self.refuse(
            self.write("a.txt", "Every rank"), says=("50 entries", "do not belong together")
        )

    def test_model_folder_without_tokenizer(self) -> None:
        Path(self.model, "tokenizer.json").unlink()
        self.refuse(self.write("a.txt", "x"), says=("tokenizer.json", "not there"))
