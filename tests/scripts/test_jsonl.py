import json
import unittest
from typing import Any

from pecia_tools.inputs import Conversation, Document, Sampling
from pecia_tools.jsonl import JobSettings, parse
from support import ScriptTest

JOB = JobSettings(("tiny",), logprobs=2)


def batch(**body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hello"}]
    return {
        "custom_id": "r1",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"messages": messages, **body},
    }


def read(line: Any) -> Any:
    return parse("in.jsonl:7", line if isinstance(line, str) else json.dumps(line), JOB)


class PlainForm(unittest.TestCase):
    def test_prompt_is_a_document(self) -> None:
        line = {"id": "a", "prompt": "text", "max_new_tokens": 5, "seed": -1, "arrival_s": 0.5}
        expected = Document("a", "text", "in.jsonl:7", Sampling(5, seed=-1), 0.5)
        self.assertEqual(read(line), expected)

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
            ),
        )

    def test_values_that_ask_for_nothing_pass(self) -> None:
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
            ({"id": "a", "prompt": "x", "stop": ["."]}, "'stop'"),
            ({"id": "a"}, "'prompt'"),
            ({"id": "a", "prompt": "x", "turns": ["x"]}, "'prompt'"),
            ({"prompt": "x"}, "'id'"),
            ({"id": 3, "prompt": "x"}, "'id'"),
            ({"id": "a", "prompt": " "}, "'prompt' is empty"),
            ({"id": "a", "prompt": "x\0"}, "'prompt' contains NUL"),
            ('{"id": "a", "prompt": "\\ud800"}', "surrogate"),
            ({"id": "a", "turns": []}, "'turns'"),
            ({"id": "a", "turns": ["x", 3]}, "'turns[1]'"),
            ({"id": "a", "turns": [{"prompt": "x", "top_k": 3}]}, "'turns[0].top_k'"),
            ({"id": "a", "prompt": "x", "max_new_tokens": 0}, "'max_new_tokens' is 0"),
            ({"id": "a", "prompt": "x", "max_new_tokens": True}, "'max_new_tokens' is true"),
            ({"id": "a", "prompt": "x", "seed": 1.5}, "'seed' is 1.5"),
            ({"id": "a", "prompt": "x", "temperature": -1}, "'temperature' is -1"),
            ('{"id": "a", "prompt": "x", "temperature": NaN}', "'temperature' is NaN"),
            ({"id": "a", "prompt": "x", "top_p": 0}, "'top_p' is 0"),
            ({"id": "a", "prompt": "x", "arrival_s": -0.1}, "'arrival_s'"),
            ('{"id": ', "not JSON"),
            ("[1]", "not a list"),
            (batch(n=2), "'body.n' is 2"),
            (batch(n=True), "'body.n' is true"),
            (batch(stream=True), "'body.stream'"),
            (batch(stop=["."]), "'body.stop'"),
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
            ({**batch(), "url": "/v1/embeddings"}, "'url' is \"/v1/embeddings\""),
            ({**batch(), "method": "GET"}, "'method'"),
            ({**batch(), "extra": 1}, "'extra'"),
            ({"custom_id": "a", "url": "/v1/chat/completions"}, "'body'"),
        ]
        for line, problem in cases:
            with self.subTest(problem):
                self.assert_refused("in.jsonl:7: ", problem, call=lambda line=line: read(line))
