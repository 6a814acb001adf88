# SPDX-License-Identifier: Apache-2.0
import json
import unittest
from typing import Any

from pecia_tools.command import UserError
from pecia_tools.pack.inputs import (
    RERANK,
    SCORE,
    VECTOR,
    Completion,
    Conversation,
    Document,
    Sampling,
)
from pecia_tools.pack.jsonl import parse
from pecia_tools.pack.request_keys import JobSettings
from support import ScriptTest

JOB = JobSettings(("tiny",), logprobs=2, vocab_size=400, hidden_size=64)


def batch(**body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hello"}]
    return {
        "custom_id": "r1",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"messages": messages, **body},
    }


def completion(prompt: Any, **body: Any) -> dict[str, Any]:
    return {"custom_id": "r1", "url": "/v1/completions", "body": {"prompt": prompt, **body}}


def embedding(value: Any, **body: Any) -> dict[str, Any]:
    return {"custom_id": "e1", "url": "/v1/embeddings", "body": {"input": value, **body}}


def read(line: Any) -> Any:
    return parse("in.jsonl:7", line if isinstance(line, str) else json.dumps(line), JOB)


class Products(unittest.TestCase):
    def test_embeddings_are_completions_that_give_a_vector(self) -> None:
        for value, prompts in (
            ("text", ("text",)),
            (["text"], ("text",)),
            ([5, 6], ((5, 6),)),
            (["text", "more", [5, 6]], ("text", "more", (5, 6))),
        ):
            source = read(embedding(value, dimensions=8, encoding_format="base64", user="u"))
            self.assertIsInstance(source, Completion)
            self.assertEqual((source.prompts, source.endpoint), (prompts, "/v1/embeddings"))
            self.assertEqual((source.dimensions, source.encoding_format), (8, "base64"))
            self.assertEqual(source.sampling, Sampling(produce=VECTOR))
        self.assertEqual(read({"body": {"input": "x"}}).encoding_format, "float")

    def test_plain_lines_say_what_they_give(self) -> None:
        line = {"id": "a", "prompt": "x", "continuations": [" yes", " no"]}
        expected = Sampling(produce=SCORE, continuations=(" yes", " no"))
        self.assertEqual(read(line).sampling, expected)
        self.assertEqual(read({**line, "produce": "rerank"}).sampling.produce, RERANK)
        turns = [{"prompt": "x", "produce": "vector", "spans": [[0, 2], [1, 3]]}, "y"]
        (_, first), (_, second) = read({"id": "a", "turns": turns}).turns
        self.assertEqual(first, Sampling(produce=VECTOR, spans=((0, 2), (1, 3))))
        self.assertEqual(second, Sampling())


class PlainForm(unittest.TestCase):
    def test_forms_without_an_id(self) -> None:
        message = {"role": "user", "content": "x"}
        for line, kind in (
            ({"prompt": "x"}, Document),
            ({"text": "x", "id": None}, Document),
            ({"turns": ["x"]}, Conversation),
            ({"messages": [message], "max_tokens": 3, "model": "tiny"}, Conversation),
            ({"body": {"messages": [message]}}, Conversation),
            ({"body": {"prompt": "x"}}, Completion),
        ):
            with self.subTest(line):
                source = parse("in.jsonl:7", json.dumps(line), JOB, "in:7")
                self.assertIsInstance(source, kind)
                self.assertEqual((source.name, source.is_numbered), ("in:7", True))
        self.assertFalse(read({"id": "a", "text": "x"}).is_numbered)

    def test_prompt_is_a_document(self) -> None:
        line = {"id": "a", "prompt": "text", "max_new_tokens": 5, "seed": -1, "arrival_s": 0.5}
        expected = Document("a", "text", "in.jsonl:7", Sampling(5, seed=-1), 0.5)
        self.assertEqual(read(line), expected)

    def test_lengths_by_any_of_their_names(self) -> None:
        for key in ("max_new_tokens", "max_tokens", "max_completion_tokens"):
            self.assertEqual(read({"id": "a", "prompt": "x", key: 7}).sampling, Sampling(7))
            turns = [{"prompt": "x", key: 7}]
            self.assertEqual(read({"id": "a", "turns": turns}).turns, [("x", Sampling(7))])
        both = {"id": "a", "prompt": "x", "max_tokens": 7, "max_completion_tokens": 7}
        self.assertEqual(read(both).sampling, Sampling(7))

    def test_shapes(self) -> None:
        schema = {"type": "object", "properties": {"é": {"type": "null"}}}
        for given, read_as in (
            ({"response_format": None}, None),
            ({"response_format": {"type": "text"}}, None),
            ({"response_format": {"type": "json_object"}}, {"schema": {"type": "object"}}),
            (
                {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}},
                {"schema": schema},
            ),
            ({"structured_outputs": {"json": schema}}, {"schema": schema}),
            ({"structured_outputs": {"regex": "[0-9]+"}}, {"regex": "[0-9]+"}),
            ({"structured_outputs": {"choice": ["ja", "nein"]}}, {"choice": ["ja", "nein"]}),
        ):
            with self.subTest(given):
                for sampling in (
                    read({"id": "a", "prompt": "x", **given}).sampling,
                    read(batch(**given)).turns[0][1],
                ):
                    shape = sampling.shape
                    self.assertEqual(None if shape is None else json.loads(shape), read_as)

    def test_shapes_that_are_none(self) -> None:
        for given, words in (
            ({"response_format": {"type": "xml"}}, "text, json_object, json_schema"),
            ({"response_format": "json_object"}, "text, json_object, json_schema"),
            ({"response_format": {"type": "json_schema"}}, "must be a JSON schema"),
            ({"structured_outputs": {"grammar": "root ::= x"}}, "a schema (json), a text"),
            ({"structured_outputs": {"choice": []}}, "texts (choice)"),
            ({"structured_outputs": {"json": {}, "regex": "a"}}, "must be one of"),
            (
                {
                    "structured_outputs": {"regex": "a"},
                    "response_format": {"type": "json_object"},
                },
                "leave one out",
            ),
        ):
            with self.subTest(given), self.assertRaises(UserError) as caught:
                read(batch(**given))
            self.assertIn(words, str(caught.exception))

    def test_stop_strings(self) -> None:
        for given, read_as in (
            (None, None),
            ("\n\n", ("\n\n",)),
            (["\n", " END"], ("\n", " END")),
            ([], ()),
            ([str(n) for n in range(9)], tuple("012345678")),
        ):
            with self.subTest(given):
                line = {"id": "a", "prompt": "x", "stop": given}
                self.assertEqual(read(line).sampling, Sampling(stop=read_as))
        line = {"id": "a", "turns": ["x", {"prompt": "y", "stop": []}], "stop": "."}
        self.assertEqual([s.stop for _, s in read(line).turns], [(".",), ()])

    def test_choices(self) -> None:
        self.assertEqual(read({"id": "a", "prompt": "x"}).num_choices, 1)
        self.assertEqual(read({"id": "a", "prompt": "x", "n": 3}).num_choices, 3)
        self.assertEqual(read({"id": "a", "turns": ["x"], "n": 2}).num_choices, 2)

    def test_turn_options_come_before_the_lines(self) -> None:
        turns = ["one", {"prompt": "two", "max_new_tokens": 9}]
        line = {"id": "a", "turns": turns, "max_new_tokens": 5, "top_p": 0.5, "system": "s"}
        self.assertEqual(
            read(line),
            Conversation(
                "a",
                [("one", Sampling(5, top_p=0.5)), ("two", Sampling(9, top_p=0.5))],
                "in.jsonl:7",
                [{"role": "system", "content": "s"}],
            ),
        )


class BatchForm(unittest.TestCase):
    def test_messages_and_options(self) -> None:
        line = batch(model="org/tiny", max_completion_tokens=8, temperature=0, top_p=1, seed=3)
        line["body"]["messages"] = [
            {"role": "system", "content": "s"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
        ]
        self.assertEqual(
            read(line),
            Conversation(
                "r1",
                [("a\nb", Sampling(8, 0, 1, 3))],
                "in.jsonl:7",
                [{"role": "system", "content": "s"}],
                endpoint="/v1/chat/completions",
            ),
        )

    def test_completions(self) -> None:
        for given, read_as in (
            ("Call me", "Call me"),
            (["Call me"], "Call me"),
            ([3, 399, 0], (3, 399, 0)),
            ([[3]], (3,)),
        ):
            with self.subTest(given):
                line = completion(given, max_tokens=4, n=2, stop=".", echo=False, best_of=1)
                expected = Completion(
                    "r1", (read_as,), "in.jsonl:7", Sampling(4, stop=(".",)), 2, "/v1/completions"
                )
                self.assertEqual(read(line), expected)

    def test_form_of_mistral(self) -> None:
        body = batch(random_seed=3)["body"]
        whole = {**batch(seed=3), "body": {**body, "random_seed": None, "seed": 3}}
        self.assertEqual(read({"custom_id": "r1", "body": body}), read(whole))
        self.assertEqual(read({**batch(seed=3), "url": None, "method": None}), read(batch(seed=3)))
        text = {"custom_id": "r1", "body": {"prompt": "x"}}
        self.assertEqual(read(text), read(completion("x")))

    def test_sampling_of_a_request(self) -> None:
        given = {
            **{"top_k": -1, "min_p": 0.5, "repetition_penalty": 1.5, "ignore_eos": True},
            **{"presence_penalty": -2, "frequency_penalty": 2},
            "logit_bias": {"9": -100, "3": 0.5},
        }
        expected = Sampling(
            top_k=0,
            min_p=0.5,
            repetition_penalty=1.5,
            presence_penalty=-2,
            frequency_penalty=2,
            ignore_eos=True,
            logit_bias=((3, 0.5), (9, -100.0)),
        )
        self.assertEqual(read(batch(**given)).turns[0][1], expected)
        self.assertEqual(read({"id": "a", "prompt": "x", **given}).sampling, expected)
        turn = {"id": "a", "turns": [{"prompt": "x", **given}]}
        self.assertEqual(read(turn).turns[0][1], expected)
        self.assertEqual(read(batch(logit_bias={}, top_k=None)).turns[0][1], Sampling())

    def test_continued_answers(self) -> None:
        messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "So"}]
        wanted = {"continue_final_message": True, "add_generation_prompt": False}
        prefixed = [messages[0], {**messages[1], "prefix": True}]
        for line in (
            {"id": "r1", "messages": messages, **wanted},
            {"id": "r1", "messages": prefixed},
            batch(messages=messages, **wanted),
            batch(messages=prefixed),
        ):
            source = read(line)
            self.assertTrue(source.is_continued)
            self.assertEqual((source.opening, source.turns[0][0]), (messages[:1], "So"))

    def test_variables_of_the_template(self) -> None:
        given = {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"}
        expected = {"enable_thinking": False, "reasoning_effort": "low"}
        for line in (
            batch(**given),
            {"id": "a", "prompt": "x", **given},
            {"id": "a", "turns": ["x"], **given},
            {"messages": [{"role": "user", "content": "x"}], **given},
        ):
            self.assertEqual(read(line).variables, expected)

    def test_values_that_ask_for_nothing_pass(self) -> None:
        labels = {"user": "me", "metadata": {"a": "b"}, "store": True}
        read({"id": "a", "prompt": "x", "stream": False, "tools": [], "echo": False, **labels})
        read(batch(tools=None, functions=None, tool_choice="auto", **labels))
        read(
            batch(
                n=1,
                stream=False,
                stop=None,
                tools=[],
                top_k=-1,
                presence_penalty=0.0,
                user="me",
                response_format={"type": "text"},
                logprobs=True,
                top_logprobs=2,
            )
        )


class Refusals(ScriptTest):
    def test_each_names_file_line_and_key(self) -> None:
        user = {"role": "user", "content": "x"}
        cases: list[tuple[Any, str]] = [
            ({"id": "a", "prompt": "x", "stop": ["a", ""]}, "'stop[1]' is empty"),
            ({"id": "a", "prompt": "x", "stop": ""}, "'stop' is empty"),
            ({"id": "a", "prompt": "x", "stop": 3}, "'stop' must be a string or a list"),
            ({"id": "a", "prompt": "x", "stop": ["\0"]}, "'stop[0]' contains NUL"),
            ({"id": "a", "prompt": "x", "n": 0}, "'n' is 0"),
            ({"id": "a", "prompt": "x", "n": 1025}, "'n' is 1025"),
            (
                {"id": "a", "prompt": "x", "max_new_tokens": 4, "max_tokens": 5},
                "'max_new_tokens' contradicts 'max_tokens'",
            ),
            ({"id": "a", "prompt": "x", "seed": -(2**63)}, "'seed' is -9223372036854775808"),
            ({"id": "a", "prompt": "x", "temperature": 10**400}, "'temperature' is Infinity"),
            ('{"id": "a", "prompt": "x", "seed": ' + "1" * 5000 + "}", "in.jsonl:7"),
            ({"id": "a", "prompt": "x", "temprature": 1}, "did you mean 'temperature'?"),
            ({"id": "a", "prompt": "x", "wombat": 1}, "known are id, prompt,"),
            ({"id": "a"}, "'prompt'"),
            ({"id": "a", "prompt": "x", "turns": ["x"]}, "'prompt'"),
            ({"id": 3, "prompt": "x"}, "'id'"),
            ({"id": "a", "prompt": " "}, "'prompt' is empty"),
            ({"id": "a", "prompt": "x\0"}, "'prompt' contains NUL"),
            ('{"id": "a", "prompt": "\\ud800"}', "surrogate"),
            ({"id": "a", "turns": []}, "'turns'"),
            ({"id": "a", "turns": ["x", 3]}, "'turns[1]'"),
            ({"id": "a", "turns": [{"prompt": "x", "top_k": -2}]}, "'turns[0].top_k'"),
            ({"id": "a", "turns": [{"prompt": "x", "n": 2}]}, "'turns[0].n' is not known"),
            ({"id": "a", "prompt": "x", "max_new_tokens": 0}, "'max_new_tokens' is 0"),
            ({"id": "a", "prompt": "x", "max_new_tokens": True}, "'max_new_tokens' is true"),
            ({"id": "a", "prompt": "x", "seed": 1.5}, "'seed' is 1.5"),
            ({"id": "a", "prompt": "x", "temperature": -1}, "'temperature' is -1"),
            ('{"id": "a", "prompt": "x", "temperature": NaN}', "'temperature' is NaN"),
            ({"id": "a", "prompt": "x", "top_p": 0}, "'top_p' is 0"),
            ({"id": "a", "prompt": "x", "arrival_s": -0.1}, "'arrival_s'"),
            ('{"id": ', "not JSON"),
            ("[1]", "not a list"),
            (batch(n=0), "'body.n' is 0"),
            (batch(n=True), "'body.n' is true"),
            (batch(stream=True), "'body.stream'"),
            (batch(stop=[""]), "'body.stop[0]'"),
            (batch(max_token=3), "did you mean 'max_tokens'?"),
            (batch(prompt="x"), "'body.prompt'"),
            (completion(None), "'body.prompt' must be a string or a list of token ids"),
            (completion([]), "not an empty list"),
            (completion(["a", "b"]), "holds 2 prompts"),
            (completion([[["a"]]]), "'body.prompt[0][0]'"),
            (completion([3, 400]), "'body.prompt[1]' is 400, but must be a token id of this model"),
            (completion([3, None]), "'body.prompt[1]' is null"),
            (completion([3, True]), "'body.prompt[1]' is true"),
            (completion("x", echo=True), "'body.echo'"),
            (completion("x", messages=[]), "'body.messages'"),
            (batch(no_such_key=1), "'body.no_such_key'"),
            (batch(model="other"), "'body.model'"),
            (batch(top_logprobs=3), "'body.top_logprobs' asks for 3"),
            (
                batch(max_tokens=3, max_completion_tokens=4),
                "contradicts 'body.max_completion_tokens'",
            ),
            (batch(messages=[]), "'body.messages'"),
            (
                batch(messages=[user, {"role": "assistant", "content": "y"}]),
                "'body.messages[1].role'",
            ),
            (batch(messages=[{"role": "tool", "content": "y"}]), "'body.messages[0].role'"),
            (batch(messages=[{**user, "name": "n"}]), "'body.messages[0].name'"),
            (
                batch(messages=[{"role": "user", "content": [{"type": "image_url"}]}]),
                "'body.messages[0].content[0]'",
            ),
            ({**batch(), "url": "/v1/images"}, "'url' is \"/v1/images\""),
            ({**batch(), "url": "/v1/embeddings"}, "'body.messages'"),
            (embedding("a", dimensions=65), "'body.dimensions' is 65"),
            (embedding("a", encoding_format="hex"), "'body.encoding_format'"),
            (embedding("a", max_tokens=3), "'body.max_tokens'"),
            (embedding(""), "'body.input' is empty"),
            (embedding(["a", ""]), "'body.input[1]' is empty"),
            (embedding(["a", 5]), "'body.input[1]' must be a string or a list of token ids"),
            (embedding([]), "not an empty list"),
            (embedding([[5], []]), "not an empty list"),
            (embedding([400]), "'body.input[0]'"),
            ({"id": "a", "prompt": "x", "produce": "sum"}, "'produce'"),
            ({"id": "a", "prompt": "x", "produce": "text", "continuations": ["y"]}, "needs"),
            ({"id": "a", "prompt": "x", "continuations": []}, "'continuations'"),
            ({"id": "a", "prompt": "x", "spans": [[3, 3]]}, "'spans[0]'"),
            ({**batch(), "method": "GET"}, "'method'"),
            ({**batch(), "extra": 1}, "'extra'"),
            ({"custom_id": "a", "url": "/v1/chat/completions"}, "'body'"),
            ({"custom_id": "a", "body": {}}, "'messages', 'prompt' and 'input'"),
            ({"custom_id": "a", "body": {"messages": [user], "prompt": "x"}}, "and only one, where"),
            ('{"id": "a", "id": "b", "prompt": "x"}', "'id' stands twice"),
            ('{"id": "a", "prompt": "x", "seed": 1e999}', "'seed' is Infinity"),
            ('{"id": "a", "prompt": "x", "seed": -Infinity}', "'seed' is -Infinity"),
            ("[" * 100_000, "more than 100 times"),
            ('{"id": "a", "prompt": ' + "[" * 101 + "]" * 101 + "}", "more than 100 times"),
            ('{"id": "a", "prompt": ' + "[" * 2000 + "!", "more than 100 times"),
            ('{"id": "a", "prompt": "' + "[" * 2000 + '", "extra": 1}', "'extra'"),
            ('{"id": "a", "prompt": "\\"' + "[" * 2000 + '", "extra": 1}', "'extra'"),
            ({"id": "a", "prompt": "x", "text": "x"}, "only one"),
            ({"id": "a", "messages": [user], "system": "x"}, "'system' cannot stand beside"),
            ({"id": "a", "prompt": "x", "continue_final_message": True}, "needs 'messages'"),
            (batch(min_p=1.5), "'body.min_p' is 1.5"),
            (batch(repetition_penalty=0), "'body.repetition_penalty' is 0"),
            (batch(repetition_penalty=1e-42), "'body.repetition_penalty' is 1e-42"),
            (batch(presence_penalty=-2.5), "'body.presence_penalty' is -2.5"),
            (batch(frequency_penalty=2.5), "'body.frequency_penalty' is 2.5"),
            (batch(ignore_eos=1), "'body.ignore_eos' is 1, but must be true or false"),
            (batch(top_p=1e-50), "'body.top_p' is 1e-50"),
            (batch(seed=1, random_seed=2), "contradicts 'body.random_seed'"),
            (batch(logit_bias=[1]), "'body.logit_bias' must be an object"),
            (batch(logit_bias={"400": 1}), "'body.logit_bias.400' is no token id"),
            (batch(logit_bias={"05": 1}), "'body.logit_bias.05' is no token id"),
            (batch(logit_bias={"5": 101}), "'body.logit_bias.5' is 101"),
            (batch(logit_bias={"5": None}), "'body.logit_bias.5' is null"),
            (batch(tools=[{"type": "function"}]), "which is not supported: answers cannot call"),
            (
                batch(tool_choice="required"),
                "'body.tool_choice' is \"required\", which is not supp",
            ),
            (batch(functions=[{}]), "'body.functions' is [{}], which is not supported"),
            (batch(stream=True), "'body.stream' is true, which is not supported"),
            (completion("x", echo=True), "'body.echo' is true, which is not supported"),
            ({"id": "a", "prompt": "x", "stream": True}, "'stream' is true, which is not supp"),
            (batch(chat_template_kwargs=[]), "'body.chat_template_kwargs' must be an object"),
            (batch(chat_template_kwargs={"tools": 1}), "'body.chat_template_kwargs.tools' is not"),
            (batch(reasoning_effort=3), "'body.reasoning_effort' must be a string"),
            (
                batch(reasoning_effort="low", chat_template_kwargs={"reasoning_effort": "high"}),
                "contradicts 'chat_template_kwargs.reasoning_effort'",
            ),
            (completion("x", reasoning_effort="low"), "a completion has no chat template"),
            (batch(continue_final_message=True), "'body.messages[0].role' must be \"assistant\""),
            (batch(add_generation_prompt=False), "which needs continue_final_message: true"),
            (
                batch(add_generation_prompt=True, continue_final_message=True),
                "'body.add_generation_prompt' is true, and so is",
            ),
            (batch(messages=[{**user, "prefix": True}]), "'body.messages[0].prefix' belongs to"),
            (batch(messages=[{**user, "tool_calls": [1]}]), "is not supported"),
        ]
        for line, problem in cases:
            with self.subTest(problem), self.assertRaises(UserError) as caught:
                read(line)
            self.assertRegex(str(caught.exception), r"^in\.jsonl:7(:\d+)?: ")
            self.assertIn(problem, str(caught.exception))

    def test_suggestions_only_when_near(self) -> None:
        with self.assertRaises(UserError) as caught:
            read({"id": "a", "prompt": "x", "wombat": 1})
        self.assertNotIn("did you mean", str(caught.exception))

    def test_columns(self) -> None:
        """'^' stands before the place."""
        for marked in (
            '{"id": ^',
            '{"id": ^\n',
            '{"id": "a", ^prompt": "x"}',
            '{"id": "a", "prompt": ^"x}\r\n',
            '{"id": "a", "prompt": "x", ^"n": 0}\n',
            '{"n": 1, "id" : "é☃", "prompt": "x",\t^"n": 0}',
            '  ^{"id": "x"}',
            '{"id": "a", "prompt": "x", "n": 1, ^"n": 2}',
            '{"id": "a", "prompt": "x", "response_format": {"type": "text", ^"type": "text"}}',
            '{"id": "a", "prompt": "x", ^"top_p": NaN}',
            '{"id": "a", "turns": ["x", {"prompt": "y", ^"seed": 0.5}]}',
            '{"id": "a", "turns": ["x", ^3]}',
            '{"id": "a", "prompt": "x", "stop": ["}", ^""]}',
            '{"id": "a", "prompt": "x", ^"a.b": 0}',
            '{"custom_id": "a", "url": "/v1/chat/completions", "body": '
            '{"messages": [{"content": "x", ^"role": "tool"}]}}',
            '{"custom_id": "a", "url": "/v1/chat/completions", "body": {"messages": [^{"content": "x"}]}}',
        ):
            with self.subTest(marked):
                column = marked.index("^") + 1
                text = marked.replace("^", "")
                self.assert_refused(f"in.jsonl:7:{column}: ", call=lambda text=text: read(text))
