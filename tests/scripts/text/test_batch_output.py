# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
from typing import Any

import h5py

from pecia_tools.pack.shard_columns import SkippedRows
from support import IM_END
from text_run import DONE, FAILED, LENGTH, OPEN, PARTIAL, STOP, TextRun


class BatchOutput(TextRun):
    def body(self, custom_id: str) -> dict[str, Any]:
        return self.lines()[custom_id]["response"]["body"]

    def test_stopped_request(self) -> None:
        rows = self.mixed_rows()
        rows[0]["cached"] = 5
        self.write_results(rows)
        line = self.lines(code=3)["a/b"]
        self.assertEqual(sorted(line), ["custom_id", "error", "id", "response"])
        self.assertIsNone(line["error"])
        self.assertEqual(line["response"]["status_code"], 200)
        body = line["response"]["body"]
        self.assertEqual(body["object"], "chat.completion")
        self.assertEqual(body["model"], "tiny")
        self.assertEqual(
            body["choices"],
            [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "Stopped."},
                    "logprobs": None,
                    "finish_reason": "stop",
                    "stop_reason": None,
                }
            ],
        )
        generated = len(rows[0]["tokens"])
        self.assertEqual(
            body["usage"],
            {
                "prompt_tokens": 12,
                "completion_tokens": generated,
                "total_tokens": 12 + generated,
                "prompt_tokens_details": {"cached_tokens": 5, "truncated_tokens": 0},
            },
        )

    def test_failed_request_carries_its_error(self) -> None:
        self.write_results(self.mixed_rows())
        line = self.lines("--only", "failed", code=3)
        self.assertEqual(list(line), ["bad"])
        self.assertIsNone(line["bad"]["response"])
        self.assertEqual(
            line["bad"]["error"], {"code": "request_failed", "message": "row 3: too long"}
        )

    def test_last_line_counts_lines(self) -> None:
        self.write_results(self.mixed_rows())
        self.lines(code=3)
        self.assertEqual(
            self.last_line,
            "pecia-text: 3 lines written, 2 left out (1 open, 1 partial) · "
            "turns: 2 done, 1 failed, 1 partial, 1 open · 1 cut by length",
        )

    def test_several_turns_have_ids_of_their_own(self) -> None:
        self.write_results([self.answered("c", turn=0), self.answered("c", turn=1)])
        self.assertEqual(list(self.lines()), ["c@0", "c@1"])

    def test_two_calls_give_the_same_bytes(self) -> None:
        self.write_results(self.mixed_rows())
        first = self.write_text("--jsonl", code=3)
        self.assertEqual(first, self.write_text("--jsonl", code=3))

    def test_truncated_tokens_are_a_detail_of_usage(self) -> None:
        self.write_results([self.answered("x", truncated=30), self.answered("y")])
        for name, truncated in (("x", 30), ("y", 0)):
            details = self.body(name)["usage"]["prompt_tokens_details"]
            self.assertEqual(details, {"cached_tokens": 0, "truncated_tokens": truncated})

    def test_usage_of_a_run_that_did_not_record_truncation(self) -> None:
        self.write_results([self.answered("x")], older=True)
        details = self.body("x")["usage"]["prompt_tokens_details"]
        self.assertEqual(details, {"cached_tokens": 0})

    def test_part_of_a_character_has_no_bytes_of_its_own(self) -> None:
        butterfly = self.encode("\U0001f98b")
        self.assertGreater(len(butterfly), 1)
        row = {"id": "x", "state": DONE, "slots": 9, "reason": LENGTH, "tokens": butterfly}
        self.write_results([row], top_k=1)
        choice = self.body("x")["choices"][0]
        self.assertEqual(choice["message"]["content"], "\U0001f98b")
        self.assertIsNone(choice["logprobs"]["content"][0]["bytes"])

    def test_logprobs(self) -> None:
        rows = self.mixed_rows()[1:2]
        self.write_results(rows, top_k=2)
        content = self.body("cut")["choices"][0]["logprobs"]["content"]
        self.assertEqual(
            [c["token"] for c in content], [self.tokenizer.decode([t]) for t in rows[0]["tokens"]]
        )
        self.assertEqual(content[0]["logprob"], -1)
        self.assertEqual([t["logprob"] for t in content[0]["top_logprobs"]], [-1.5, -1.5])


class StopStrings(TextRun):
    def choice(self, words: str, before: str, **shard: Any) -> dict[str, Any]:
        """The choice of an answer `words` that was stopped after `before`."""
        self.write_shard([{"id": "x", "turns": ["one"], **shard}])
        tokens = self.encode(words)
        row = {"id": "x", "state": DONE, "slots": 40, "reason": STOP, "tokens": tokens, "prompt": 1}
        self.write_results([{**row, "text_bytes": len(before.encode())}])
        return self.lines()["x"]["response"]["body"]["choices"][0]

    def test_of_the_shard(self) -> None:
        choice = self.choice("Fünf.\n\nQ: x", "Fünf.", stop=[json.dumps(["Q:", "\n\n"])])
        self.assertEqual(choice["message"]["content"], "Fünf.")
        self.assertEqual((choice["finish_reason"], choice["stop_reason"]), ("stop", "\n\n"))

    def test_the_one_that_is_whole_first(self) -> None:
        choice = self.choice("Five.\n\nQ", "Five.", stop=[json.dumps(["\n\n", "\n"])])
        self.assertEqual(choice["stop_reason"], "\n")

    def test_of_the_job_where_the_shard_has_none(self) -> None:
        self.settings = [{"generation.stop": ["END"]}]
        self.assertEqual(self.choice("Five END", "Five ", stop=[""])["stop_reason"], "END")
        self.assertEqual(self.choice("Five END", "Five ")["stop_reason"], "END")

    def test_unknown(self) -> None:
        self.settings = [{"generation.stop": ["END"]}]
        choice = self.choice("Five END", "Five ", stop=[json.dumps(["other"])])
        self.assertEqual(choice["message"]["content"], "Five ")
        self.assertIsNone(choice["stop_reason"])

    def test_empty_answer(self) -> None:
        choice = self.choice("END", "", stop=[json.dumps(["END"])])
        self.assertEqual(choice["message"]["content"], "")
        self.assertEqual(choice["stop_reason"], "END")


class Choices(TextRun):
    def shard(self, **more: Any) -> None:
        line = {"custom_id": "line", "turns": ["one"], **more}
        self.write_shard(
            [
                {**line, "id": "line~2", "choice": (1, 2)},
                {"id": "other", "turns": ["two"], "custom_id": "other", "choice": (0, 1)},
                {**line, "id": "line~1", "choice": (0, 2)},
            ]
        )

    def rows(self, **second: Any) -> list[dict[str, Any]]:
        return [
            {**self.answered("line~2", "B", prompt=1), **second},
            self.answered("other", "Other", prompt=1),
            self.answered("line~1", "A", prompt=1),
        ]

    def test_are_joined_in_their_order(self) -> None:
        self.shard()
        self.write_results(self.rows())
        lines = self.lines()
        self.assertEqual(sorted(lines), ["line", "other"])
        body = lines["line"]["response"]["body"]
        self.assertEqual(
            [(c["index"], c["message"]["content"]) for c in body["choices"]], [(0, "A"), (1, "B")]
        )
        usage = body["usage"]
        self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"]), (1, 4))
        self.assertEqual(usage["total_tokens"], 5)
        self.assertNotEqual(lines["line"]["id"], lines["other"]["id"])

    def test_a_line_waits_for_all_its_choices(self) -> None:
        self.shard()
        for state in (OPEN, PARTIAL):
            self.write_results(self.rows(state=state))
            self.assertEqual(list(self.lines(code=3)), ["other"])
            name = {OPEN: "open", PARTIAL: "partial"}[state]
            self.assertIn(f"1 line written, 1 left out (1 {name})", self.last_line)

    def test_a_line_fails_with_one_of_its_choices(self) -> None:
        self.shard()
        self.write_results(self.rows(state=FAILED, error="no room", tokens=[], reason=3))
        line = self.lines(code=3)["line"]
        self.assertIsNone(line["response"])
        self.assertEqual(line["error"]["message"], "choice 1 of 2: no room")

    def test_of_one_line_keep_the_name_of_the_line(self) -> None:
        self.write_shard([{"id": "x", "turns": ["one"], "custom_id": "asked", "choice": (0, 1)}])
        self.write_results([self.answered("x", prompt=1)])
        self.assertEqual(list(self.lines()), ["asked"])


class LeftOut(TextRun):
    """Lines that were not packed."""

    def setUp(self) -> None:
        super().setUp()
        path = self.write_shard([{"id": "x", "turns": ["one"]}])
        with h5py.File(path, "a") as file:
            SkippedRows([("y", "in.jsonl:2:9", "key 'n' is 0")]).write(file)
        self.identity["input_sha256"] = [hashlib.sha256(path.read_bytes()).hexdigest()]
        self.write_results([self.answered("x")])

    def test_each_has_a_line_with_its_error(self) -> None:
        lines = self.lines(code=3)
        self.assertEqual(list(lines), ["x", "y"])
        line = lines["y"]
        self.assertRegex(line.pop("id"), "^batch_req_[0-9a-f]{24}$")
        error = {"code": "invalid_request", "message": "in.jsonl:2:9: key 'n' is 0"}
        self.assertEqual(line, {"custom_id": "y", "response": None, "error": error})
        self.assertIn("2 lines written", self.last_line)
        self.assertIn("1 left out when they were packed", self.last_line)

    def test_they_go_with_those_that_failed(self) -> None:
        self.assertEqual(list(self.lines("--only", "done", code=3)), ["x"])
        self.assertEqual(list(self.lines("--only", "failed", code=3)), ["y"])
        self.assertEqual(list(self.lines("--no-prompts")), ["x"])


class Completions(TextRun):
    def test_text_completion(self) -> None:
        url = "/v1/completions"
        self.write_shard([{"id": "x", "turns": ["one"], "endpoint": url, "custom_id": "x"}])
        self.write_results([self.answered("x", "One two", prompt=1)], top_k=1)
        body = self.lines()["x"]["response"]["body"]
        self.assertEqual(body["object"], "text_completion")
        self.assertTrue(body["id"].startswith("cmpl-"))
        (choice,) = body["choices"]
        self.assertEqual(choice["text"], "One two")
        self.assertNotIn("message", choice)
        logprobs = choice["logprobs"]
        tokens = [*self.encode("One two"), IM_END]
        self.assertEqual(
            logprobs["tokens"],
            [self.tokenizer.decode([t], skip_special_tokens=False) for t in tokens],
        )
        self.assertEqual(logprobs["text_offset"][:2], [0, len(logprobs["tokens"][0])])
        self.assertEqual(len(logprobs["top_logprobs"]), len(tokens))
        self.assertEqual(logprobs["token_logprobs"][0], -1)

    def test_other_endpoints_are_chats(self) -> None:
        for endpoint in ("/v1/chat/completions", ""):
            self.write_shard([{"id": "x", "turns": ["one"], "endpoint": endpoint}])
            self.write_results([self.answered("x", prompt=1)])
            body = self.lines()["x"]["response"]["body"]
            self.assertEqual(body["object"], "chat.completion")
