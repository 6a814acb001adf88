import hashlib
import io
import json
import sys
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
from pecia_tools import pack
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

    def pack(self, *arguments: object) -> str:
        code, out, err = quietly(
            pack.main, "--model", self.model, "--output", self.shard, *arguments
        )
        self.assertEqual((code, out), (0, ""))
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
        with mock.patch("pecia_tools.prompts.BATCH_CHARACTERS", 100_000):
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
        )
        with h5py.File(self.shard) as file:
            for name, dtype, value in (
                ("max_new_tokens", "int32", 7),
                ("temperature", "float32", 0.5),
                ("top_p", "float32", 0.25),
                ("seed", "int64", -3),
            ):
                self.assertEqual((file[name].dtype, file[name][:].tolist()), (dtype, [value]))


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
        self.pack(document, "--force")
        self.assertEqual(list(read_turns(self.shard)), ["a"])

    def test_same_name_twice(self) -> None:
        self.refuse(
            self.write("a.txt", "x"), self.write("a.md", "y"), says=("'a'", "a.txt", "a.md")
        )

    def test_failure_in_a_late_shard_leaves_none(self) -> None:
        lines = self.write_lines("in.jsonl", {"id": "a", "prompt": "x"}, {"id": "b", "prompt": ""})
        self.refuse(lines, "--shard-requests", 1, says=("in.jsonl:2", "'prompt' is empty"))

    def test_option_of_some_lines_only(self) -> None:
        lines = self.write_lines(
            "in.jsonl", {"id": "a", "prompt": "x", "top_p": 0.5}, {"id": "b", "prompt": "y"}
        )
        self.refuse(lines, says=("in.jsonl:2: has no 'top_p'", "in.jsonl:1", "--top-p"))
        self.pack(lines, "--top-p", 1)
        with h5py.File(self.shard) as file:
            self.assertEqual(file["top_p"][:].tolist(), [0.5, 1])

    def test_instruction_for_a_conversation(self) -> None:
        lines = self.write_lines("in.jsonl", {"id": "a", "turns": ["x"]})
        for option in (("--instruction", "i"), ("--question", "q"), ("--split-tokens", 20)):
            self.refuse(lines, *option, says=("in.jsonl:1", option[0]))

    def test_options_that_exclude_each_other(self) -> None:
        document = self.write("a.txt", "x")
        self.refuse(document, "--question", "q", "--instruction", "i", says=("--question",))
        self.refuse(document, "--no-chat", "--system", "s", says=("--system",))

    def test_template_places(self) -> None:
        document = self.write("a.txt", "x")
        for template, problem in (
            ("{nam}{text}", "{nam}"),
            ("no place", "{text} must occur once"),
            ("{text} {", "literal brace"),
        ):
            self.refuse(document, "--template", self.write("t", template), says=("t: ", problem))

    def test_over_length(self) -> None:
        files = self.write("a.txt", PROSE), self.write("b.txt", "b")
        self.refuse(*files, "--max-tokens", 30, says=("a.txt", "more than 30", "--split-tokens"))
        message = self.pack(*files, "--max-tokens", 30, "--over-length", "skip")
        self.assertIn("left out 'a'", message)
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
