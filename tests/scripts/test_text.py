import json
from pathlib import Path
from typing import Any

import h5py
from pecia_tools import text
from pecia_tools.text import file_name
from support import IM_END, ScriptTest, make_model, make_results, make_tokenizer, quietly

OPEN, PARTIAL, DONE, FAILED = range(4)
STOP, LENGTH = 1, 2


class TextTest(ScriptTest):
    tokenizer = make_tokenizer()

    def setUp(self) -> None:
        super().setUp()
        self.model = make_model(self.folder / "tiny")
        self.run_folder = self.folder / "run"
        self.run_folder.mkdir()
        self.rows: list[dict[str, Any]] = [
            {
                "id": "a/b",
                "state": DONE,
                "slots": 40,
                "reason": STOP,
                "prompt": 7,
                "tokens": [*self.encode("Stopped."), IM_END],
            },
            {
                "id": "cut",
                "state": DONE,
                "slots": 3,
                "reason": LENGTH,
                "tokens": self.encode("ring")[:3],
            },
            {"id": "bad", "state": FAILED, "slots": 9, "reason": 3, "error": "row 3: too long"},
            {"id": "half", "state": PARTIAL, "slots": 40, "tokens": self.encode("So far")},
            {"id": "later", "state": OPEN, "slots": 9},
        ]

    def encode(self, words: str) -> list[int]:
        return self.tokenizer.encode(words, add_special_tokens=False).ids

    def write_text(self, *arguments: object) -> str:
        code, out, err = quietly(text.main, self.run_folder, "--model", self.model, *arguments)
        self.assertEqual(code, 0)
        self.message = err
        return out

    def files(self) -> dict[str, str]:
        folder = self.folder / "text"
        return {
            p.relative_to(folder).as_posix(): p.read_text(encoding="utf-8")
            for p in folder.rglob("*")
            if p.is_file()
        }

    def lines(self, *arguments: object) -> dict[str, dict[str, Any]]:
        lines = [json.loads(line) for line in self.write_text("--jsonl", *arguments).splitlines()]
        by_id = {line["custom_id"]: line for line in lines}
        self.assertEqual(len(by_id), len(lines))
        return by_id


class TextFiles(TextTest):
    def test_done_and_failed_without_stop_token(self) -> None:
        make_results(self.run_folder / "results.h5", self.rows)
        self.write_text("--output", self.folder / "text")
        self.assertEqual(
            self.files(),
            {
                "a/b.txt": "Stopped.\n",
                "cut.txt": self.tokenizer.decode(self.rows[1]["tokens"]) + "\n",
                "bad.txt": "[failed: row 3: too long]\n",
            },
        )
        self.assertIn("2 done, 1 failed, 1 partial, 1 open", self.message)

    def test_ordinary_token_that_stopped_an_answer_is_not_shown(self) -> None:
        tokens = [*self.encode("Stopped"), *self.encode("#")]
        self.assertEqual(len(self.encode("#")), 1)
        row = {"id": "x", "state": DONE, "slots": 40, "tokens": tokens}
        make_results(
            self.run_folder / "results.h5",
            [{**row, "reason": STOP}, {**row, "id": "y", "reason": LENGTH}],
        )
        self.write_text("--output", self.folder / "text")
        self.assertEqual(self.files(), {"x.txt": "Stopped\n", "y.txt": "Stopped#\n"})

    def test_only_one_state(self) -> None:
        make_results(self.run_folder / "results.h5", self.rows)
        self.write_text("--output", self.folder / "text", "--only", "partial")
        self.assertEqual(self.files(), {"half.txt": "So far\n"})

    def test_turns_of_a_fork_are_told_apart_and_its_document_is_not_shown(self) -> None:
        make_results(
            self.run_folder / "results.h5",
            [
                {"id": "f", "turn": 0, "state": DONE, "slots": 0},
                {
                    "id": "f",
                    "turn": 1,
                    "state": DONE,
                    "slots": 9,
                    "reason": STOP,
                    "tokens": [*self.encode("One"), IM_END],
                },
                {
                    "id": "f",
                    "turn": 2,
                    "state": DONE,
                    "slots": 9,
                    "reason": STOP,
                    "tokens": [*self.encode("Two"), IM_END],
                },
            ],
        )
        self.write_text("--output", self.folder / "text")
        self.assertEqual(self.files(), {"f.txt": "--- turn 1 ---\nOne\n\n--- turn 2 ---\nTwo\n"})

    def test_existing_texts_are_kept_without_force(self) -> None:
        make_results(self.run_folder / "results.h5", self.rows)
        self.write("text/cut.txt", "mine")
        self.assert_refused(
            "cut.txt", "--force", call=lambda: self.write_text("--output", self.folder / "text")
        )
        self.write_text("--output", self.folder / "text", "--force")
        self.assertNotEqual(self.files()["cut.txt"], "mine")

    def test_no_id_leaves_the_folder(self) -> None:
        for request_id, name in (
            ("../x", "%2E%2E/x.txt"),
            ("/etc/x", "%2F/etc/x.txt"),
            ("a\nb%", "a%0Ab%25.txt"),
            ("é#001", "é#001.txt"),
        ):
            self.assertEqual(file_name(request_id), name)


class BatchOutput(TextTest):
    def test_stopped_request(self) -> None:
        self.rows[0]["cached"] = 5
        make_results(self.run_folder / "results.h5", self.rows)
        line = self.lines()["a/b"]
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
                }
            ],
        )
        generated = len(self.rows[0]["tokens"])
        self.assertEqual(
            body["usage"],
            {
                "prompt_tokens": 12,
                "completion_tokens": generated,
                "total_tokens": 12 + generated,
                "prompt_tokens_details": {"cached_tokens": 5},
            },
        )

    def test_failed_request_carries_its_error(self) -> None:
        make_results(self.run_folder / "results.h5", self.rows)
        line = self.lines("--only", "failed")
        self.assertEqual(list(line), ["bad"])
        self.assertIsNone(line["bad"]["response"])
        self.assertEqual(
            line["bad"]["error"], {"code": "request_failed", "message": "row 3: too long"}
        )

    def test_several_turns_have_ids_of_their_own(self) -> None:
        make_results(
            self.run_folder / "results.h5",
            [
                {
                    "id": "c",
                    "turn": t,
                    "state": DONE,
                    "slots": 9,
                    "reason": LENGTH,
                    "tokens": self.encode("ring"),
                }
                for t in range(2)
            ],
        )
        self.assertEqual(list(self.lines()), ["c@0", "c@1"])

    def test_two_calls_give_the_same_bytes(self) -> None:
        make_results(self.run_folder / "results.h5", self.rows)
        self.assertEqual(self.write_text("--jsonl"), self.write_text("--jsonl"))

    def test_logprobs(self) -> None:
        make_results(self.run_folder / "results.h5", self.rows[1:2], top_k=2)
        tokens = self.rows[1]["tokens"]
        content = self.lines()["cut"]["response"]["body"]["choices"][0]["logprobs"]["content"]
        self.assertEqual(
            [c["token"] for c in content], [self.tokenizer.decode([t]) for t in tokens]
        )
        self.assertEqual(content[0]["logprob"], -1)
        self.assertEqual([t["logprob"] for t in content[0]["top_logprobs"]], [-1.5, -1.5])

    def test_part_of_a_character_has_no_bytes_of_its_own(self) -> None:
        butterfly = self.encode("\U0001f98b")
        self.assertGreater(len(butterfly), 1)
        make_results(
            self.run_folder / "results.h5",
            [{"id": "x", "state": DONE, "slots": 9, "reason": LENGTH, "tokens": butterfly}],
            top_k=1,
        )
        choice = self.lines()["x"]["response"]["body"]["choices"][0]
        self.assertEqual(choice["message"]["content"], "\U0001f98b")
        self.assertIsNone(choice["logprobs"]["content"][0]["bytes"])

    def test_file_instead_of_stdout(self) -> None:
        make_results(self.run_folder / "results.h5", self.rows)
        path = self.folder / "out.jsonl"
        self.assertEqual(self.write_text("--jsonl", "--output", path), "")
        self.assertEqual(len(path.read_text().splitlines()), 3)


class FindingTheTokenizer(TextTest):
    def ids(self) -> list[str]:
        code, out, _ = quietly(text.main, self.run_folder, "--jsonl")
        self.assertEqual(code, 0)
        return [json.loads(line)["custom_id"] for line in out.splitlines()]

    def test_report_names_the_model(self) -> None:
        make_results(self.run_folder / "results.h5", self.rows)
        report = {"job": {"model": {"path": str(self.model)}}}
        (self.run_folder / "report.json").write_text(json.dumps(report))
        self.assertEqual(self.ids(), ["a/b", "cut", "bad"])

    def test_identity_names_it_while_there_is_no_report(self) -> None:
        make_results(
            self.run_folder / "results.h5", self.rows, json.dumps({"model": str(self.model)})
        )
        self.assertEqual(self.ids(), ["a/b", "cut", "bad"])

    def test_neither(self) -> None:
        make_results(self.run_folder / "results.h5", self.rows)
        self.assert_refused("--model", call=self.ids)

    def test_model_that_has_gone(self) -> None:
        make_results(
            self.run_folder / "results.h5", self.rows, json.dumps({"model": "/nowhere/tiny"})
        )
        self.assert_refused("/nowhere/tiny", "--model", call=self.ids)


class DamagedFiles(TextTest):
    def refuse(self, *parts: str) -> None:
        self.assert_refused("results.h5", *parts, call=lambda: self.write_text("--jsonl"))

    def test_absent_or_not_hdf5(self) -> None:
        self.refuse("no such")
        Path(self.run_folder, "results.h5").write_text("text")
        self.refuse("not a readable HDF5 file")

    def test_other_schema_missing_dataset_and_impossible_counts(self) -> None:
        path = make_results(self.run_folder / "results.h5", self.rows)
        with h5py.File(path, "a") as file:
            file["output_tokens"][1] = 4
        self.refuse("/output_tokens[1] is 4", "3 slots")
        with h5py.File(path, "a") as file:
            del file["error"]
        self.refuse("/error is missing")
        with h5py.File(path, "a") as file:
            file.attrs["schema"] = "pecia.prompts/1"
        self.refuse("pecia.prompts/1")
