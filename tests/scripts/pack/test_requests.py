# SPDX-License-Identifier: Apache-2.0
"""From lines and tables to shards: ids, columns, examples, variables, what was left out."""

import json
import math

import h5py

from pecia_tools.pack import main as pack
from pecia_tools.runs.prompt_shard import PromptShard
from support import BOS, CHATML, ScriptTest, make_model, make_tokenizer, quietly, read_turns

USER, ANSWER = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
HELLO = [{"role": "user", "content": "Hello"}]
THINKS = (
    CHATML
    + "{%- if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
)


class RequestTest(ScriptTest):
    tokenizer = make_tokenizer()

    def setUp(self) -> None:
        super().setUp()
        self.model = make_model(self.folder / "tiny", THINKS)
        self.shard = self.folder / "out.h5"

    def pack(self, *arguments: object, code: int = 0) -> str:
        found, _, err = quietly(
            pack.main, "--model", self.model, "--output", self.shard, "--force", *arguments
        )
        self.assertEqual(found, code, err)
        return err

    def texts(self) -> dict[str, list[str]]:
        return {
            name: [self.tokenizer.decode(turn, skip_special_tokens=False) for turn in turns]
            for name, turns in read_turns(self.shard).items()
        }


class Ids(RequestTest):
    def test_of_file_and_line_and_unlike_all_that_are_given(self) -> None:
        lines = [
            {"text": "one"},
            {"id": "batch:1", "text": "two"},
            {"custom_id": "c", "body": {"messages": HELLO}},
            {"body": {"prompt": "four"}},
        ]
        first = self.write("batch.jsonl", "\n\n".join(map(json.dumps, lines)))
        second = self.write_lines("b/batch.jsonl", {"text": "other"}, {}, {"text": "third"})
        self.pack(first, second, code=3)
        names = [f"{first}:1", "batch:1", "c", "batch:7", "b/batch:1", "b/batch:3"]
        self.assertEqual(list(self.texts()), names)
        self.pack(first, "--limit", 1)
        self.assertEqual(list(self.texts()), ["batch:1"])


class Left(RequestTest):
    def test_out_is_in_the_shard(self) -> None:
        path = self.folder / "batch.jsonl"
        path.write_bytes(
            b'{"custom_id": "a", "body": {"prompt": "x"}}\n'
            b'{"custom_id": "b", "body": {"prompt": "x", "stream": true}}\n'
            b'{"custom_id": "a", "body": {"prompt": "x"}}\n'
            b"not JSON\n"
            b"\xff\n"
            b'{"custom_id": "\\ud800", "body": {"prompt": "x"}}\n'
        )
        self.pack(path, "--skip-bad", code=3)
        found = PromptShard(self.shard).skipped()
        names = ["b", "a", "batch:4", "batch:5", "batch:6"]
        self.assertEqual([skipped.custom_id for skipped in found], names)
        self.assertEqual(found[0].where, f"{path}:2:44")
        self.assertIn("not supported", found[0].message)
        self.assertEqual(list(self.texts()), ["a"])

    def test_out_for_its_length_is_in_the_last_shard(self) -> None:
        lines = [{"id": str(n), "text": "word " * (50 if n == 1 else 2)} for n in range(3)]
        path = self.write_lines("in.jsonl", *lines)
        options = ("--max-tokens", 30, "--over-length", "skip", "--shard-requests", 1)
        self.pack(path, *options)
        first, last = (PromptShard(self.folder / f"out-000{n}.h5").skipped() for n in (1, 2))
        self.assertEqual((first, [s.custom_id for s in last]), ([], ["1"]))

    def test_nothing_leaves_no_group(self) -> None:
        self.pack(self.write_lines("in.jsonl", {"text": "x"}))
        with h5py.File(self.shard) as file:
            self.assertNotIn("skipped", file)

    def test_one_that_tokenizes_to_nothing_harms_no_other(self) -> None:
        self.model = make_model(self.folder / "other")
        path = self.model / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        tokenizer["normalizer"] = {
            **{"type": "Replace", "pattern": {"String": "void"}, "content": ""},
        }
        tokenizer["post_processor"] = None
        path.write_text(json.dumps(tokenizer))
        lines = [{"custom_id": text, "body": {"prompt": text}} for text in ("a", "void", "b")]
        self.pack(self.write_lines("in.jsonl", *lines), "--skip-bad", code=3)
        self.assertEqual(list(self.texts()), ["a", "b"])
        self.assertIn("has no tokens", PromptShard(self.shard).skipped()[0].message)


class Sampling(RequestTest):
    def test_is_in_datasets_of_its_own(self) -> None:
        asked = {"top_k": 5, "min_p": 0.5, "ignore_eos": False, "logit_bias": {"7": 1, "3": -100}}
        self.pack(
            self.write_lines("in.jsonl", {"text": "x"}, {"text": "y", **asked}, {"text": "z"})
        )
        with h5py.File(self.shard) as file:
            self.assertEqual(file["top_k"][:].tolist(), [-1, 5, -1])
            self.assertEqual(file["top_k"].dtype, "i4")
            self.assertTrue(math.isnan(file["min_p"][0]))
            self.assertEqual(file["min_p"][1], 0.5)
            self.assertEqual(file["ignore_eos"][:].tolist(), [-1, 0, -1])
            self.assertEqual(file["ignore_eos"].dtype, "i1")
            self.assertEqual(file["logit_bias_offsets"][:].tolist(), [0, 0, 2, 2])
            self.assertEqual(file["logit_bias_tokens"][:].tolist(), [3, 7])
            self.assertEqual(file["logit_bias"][:].tolist(), [-100, 1])
            for key in ("repetition_penalty", "presence_penalty", "frequency_penalty"):
                self.assertNotIn(key, file)


    def test_log_probabilities_that_the_job_has_to_write(self) -> None:
        asked = {"messages": HELLO, "logprobs": True, "top_logprobs": 3}
        lines = self.write_lines("in.jsonl", {"custom_id": "a", "body": asked}, {"text": "x"})
        self.pack(lines, "--logprobs", 3)
        with h5py.File(self.shard) as file:
            self.assertEqual(file["logprobs"][:].tolist(), [3, -1])


class Chats(RequestTest):
    def test_variables_of_line_and_option(self) -> None:
        given = {"chat_template_kwargs": {"enable_thinking": True}}
        lines = self.write_lines(
            "in.jsonl", {"messages": HELLO}, {"messages": HELLO, **given}, {"text": "x"}
        )
        self.pack(lines, "--chat-template-kwargs", '{"enable_thinking": false}')
        ends = [turns[0].endswith("<think></think>") for turns in self.texts().values()]
        self.assertEqual(ends, [True, False, True])

    def test_effort_that_the_template_does_not_know(self) -> None:
        lines = self.write_lines(
            "in.jsonl", {"messages": HELLO, "reasoning_effort": "low"}, {"text": "x"}
        )
        self.pack(lines, "--skip-bad", code=3)
        message = PromptShard(self.shard).skipped()[0].message
        self.assertIn("does not use 'reasoning_effort'", message)

    def test_answer_that_is_continued(self) -> None:
        begun = {"role": "assistant", "content": "The ring", "prefix": True}
        self.pack(self.write_lines("in.jsonl", {"id": "a", "messages": [*HELLO, begun]}))
        self.assertEqual(self.texts()["a"], [f"{USER}Hello{ANSWER}The ring"])

    def test_examples_come_before_each_document(self) -> None:
        pairs = [{"user": "one", "assistant": "1"}]
        pairs.append(
            {
                "messages": [
                    {"role": "user", "content": "two"},
                    {"role": "assistant", "content": "2"},
                ]
            }
        )
        examples = self.write_lines("examples.jsonl", *pairs)
        document = self.write("a.txt", "three")
        self.pack(document, "--examples", examples, "--system", "Count.")
        shown = f"{USER}one{ANSWER}1<|im_end|>\n{USER}two{ANSWER}2<|im_end|>\n{USER}three{ANSWER}"
        system = "<|im_start|>system\nCount.<|im_end|>\n"
        self.assertEqual(self.texts()["a"], [system + shown])
        self.pack(document, "--examples", examples, "--no-chat")
        turn = read_turns(self.shard)["a"][0]
        plain = "one\n\n1\n\ntwo\n\n2\n\nthree"
        self.assertEqual((turn[0], self.tokenizer.decode(turn)), (BOS, plain))

    def test_examples_that_are_none(self) -> None:
        document = self.write("a.txt", "three")
        for line, problem in (
            ({"user": "x"}, "an example is"),
            ({"user": "x", "assistant": ""}, "'assistant' is empty"),
            ({"messages": [{"role": "user", "content": "x"}]}, "an example is"),
            ({"messages": [{"role": "assistant", "content": "x"}] * 2}, 'must be "user"'),
        ):
            path = self.write_lines("examples.jsonl", line)
            call = lambda path=path: self.pack(document, "--examples", path)  # noqa: E731
            self.assert_refused("examples.jsonl:1", problem, call=call)


class Columns(RequestTest):
    def test_are_filled_in(self) -> None:
        template = self.write("t.txt", "{context} {year}? {text}")
        lines = [
            {"id": "a", "text": "x", "context": "In", "year": 1900, "answer": "unused"},
            {"id": "b", "text": "x", "context": "In"},
            {"id": "c", "text": "x", "context": None, "year": 1},
            {"id": "d", "text": "x", "context": "In", "year": 1, "temprature": 1},
        ]
        self.pack(
            self.write_lines("in.jsonl", *lines), "--template", template, "--skip-bad", code=3
        )
        self.assertEqual(self.texts(), {"a": [f"{USER}In 1900? x{ANSWER}"]})
        found = [skipped.message for skipped in PromptShard(self.shard).skipped()]
        for message, problem in zip(
            found,
            ("'year' is missing", "'context' has no value here", "did you mean 'temperature'"),
        ):
            self.assertIn(problem, message)
        self.assertEqual(len(found), 3)

    def test_text_is_not_needed_beside_them(self) -> None:
        template = self.write("t.txt", "{question_text}")
        self.pack(
            self.write_lines("in.jsonl", {"id": "a", "question_text": "Why?"}),
            "--template",
            template,
        )
        self.assertEqual(self.texts(), {"a": [f"{USER}Why?{ANSWER}"]})

    def test_a_file_has_none(self) -> None:
        template = self.write("t.txt", "{text} {year}")
        lines = self.write_lines("in.jsonl", {"id": "a", "text": "x", "year": 1})
        self.pack(self.write("doc.txt", "x"), lines, "--template", template, code=3)
        self.assertIn("has no column 'year'", PromptShard(self.shard).skipped()[0].message)
        call = lambda: self.pack(self.folder / "doc.txt", "--template", template)  # noqa: E731
        self.assert_refused("placeholder {year} is not known", call=call)
