# SPDX-License-Identifier: Apache-2.0
import contextlib
import csv
import io
import json
from pathlib import Path

import h5py

from pecia_tools.text import main as text
from pecia_tools.text.files import LONGEST_NAME_BYTES, file_name
from support import make_results, quietly
from text_run import DONE, LENGTH, OPEN, STOP, TextRun


class TextFiles(TextRun):
    def test_tokens_outside_the_vocabulary_are_damage(self) -> None:
        for bad in (-1, 512, 2**31 - 1):
            with self.subTest(bad=bad):
                tokens = [*self.encode("An"), bad]
                rows = [self.answered("good", slots=9), {**self.answered("b"), "tokens": tokens}]
                path = self.write_results(rows)
                with h5py.File(path, "a") as file:
                    file.attrs["vocab_size"] = 512
                self.assert_refused(
                    f"/tokens[{9 + len(tokens) - 1}] is {bad}, and the vocabulary has 512",
                    "request 'b', turn 0); the file is damaged",
                    call=lambda: self.write_text("--jsonl"),
                )

    def test_done_and_failed_without_stop_token(self) -> None:
        rows = self.mixed_rows()
        self.write_results(rows)
        self.assertEqual(
            self.write_files(code=3),
            {
                "a/b.txt": "Stopped.\n",
                "cut.txt": self.tokenizer.decode(rows[1]["tokens"]) + "\n",
                "bad.txt": "[failed: row 3: too long]\n",
            },
        )
        self.assertEqual(
            self.last_line,
            f"pecia-text: 3 texts written → {self.folder / 'text'} · "
            "turns: 2 done, 1 failed, 1 partial, 1 open · 1 cut by length",
        )

    def test_exit_code_0_means_that_all_turns_are_done(self) -> None:
        self.write_results([self.answered("a"), self.answered("b")])
        self.write_files(code=0)
        self.assertEqual(len(self.lines(code=0)), 2)
        for unfinished in self.mixed_rows()[2:]:
            self.write_results([self.answered("a"), unfinished])
            self.write_files(code=3)
            self.lines(code=3)

    def test_ordinary_token_that_stopped_an_answer_is_not_shown(self) -> None:
        tokens = [*self.encode("Stopped"), *self.encode("#")]
        self.assertEqual(len(self.encode("#")), 1)
        row = {"id": "x", "state": DONE, "slots": 40, "tokens": tokens}
        self.write_results([{**row, "reason": STOP}, {**row, "id": "y", "reason": LENGTH}])
        self.assertEqual(self.write_files(), {"x.txt": "Stopped\n", "y.txt": "Stopped#\n"})

    def test_stop_string_ends_the_text_at_its_byte(self) -> None:
        tokens = self.encode("Fünf.\n\nQ: next")
        row = {"id": "x", "state": DONE, "slots": 40, "reason": STOP, "tokens": tokens}
        self.write_results([{**row, "text_bytes": len("Fünf.".encode())}])
        self.assertEqual(self.write_files(), {"x.txt": "Fünf.\n"})

    def test_stop_token_in_a_file_that_knows_stop_strings(self) -> None:
        self.write_results([self.answered("x", "One two", text_bytes=-1)])
        self.assertEqual(self.write_files(), {"x.txt": "One two\n"})

    def test_unfinished_text_says_that_it_is(self) -> None:
        self.write_results(self.mixed_rows())
        tokens = len(self.encode("So far"))
        self.assertEqual(
            self.write_files("--only", "partial", code=3),
            {"half.txt": f"So far\n\n[not finished yet: {tokens} tokens so far]\n"},
        )

    def test_answers_that_were_cut_are_marked_on_wish(self) -> None:
        self.identity = {"over_length": "truncate_left"}
        tokens = self.encode("ring ring")
        row = {"id": "x", "state": DONE, "reason": LENGTH, "tokens": tokens}
        self.write_results(
            [
                {**row, "slots": len(tokens)},
                {**row, "id": "y", "slots": 500},
                self.answered("z", "ring ring"),
            ]
        )
        self.assertEqual(self.write_files()["x.txt"], "ring ring\n")
        self.assertIn("2 cut by length", self.last_line)
        files = self.write_files("--finish-reason")
        cut = f"ring ring\n\n[the answer was cut at max_new_tokens = {len(tokens)}]\n"
        self.assertEqual(files["x.txt"], cut)
        self.assertIn(f"after {len(tokens)} tokens, at the model's length]", files["y.txt"])
        self.assertEqual(files["z.txt"], "ring ring\n")

    def test_truncated_prompts_say_what_was_left_out(self) -> None:
        self.settings = [
            {"limits.over_length": "truncate_left"},
            {"limits.over_length": "truncate_middle"},
        ]
        for settings, where in enumerate(("first", "middle")):
            row = self.answered("x", prompt=560, truncated=2494, settings=settings)
            self.write_results([row])
            self.assertEqual(
                self.write_files(),
                {"x.txt": f"[the {where} 2,494 of 3,054 tokens were left out]\n\nAnswer\n"},
            )
            self.assertIn("1 truncated", self.last_line)

    def test_truncation_that_an_older_run_did_not_record_follows_from_the_shard(self) -> None:
        self.identity = {"over_length": "truncate_left"}
        self.write_shard([{"id": "x", "turns": ["one two three four five six"]}])
        given = len(self.encode("one two three four five six"))
        self.write_results([self.answered("x", prompt=3)], older=True)
        mark = f"[the first {given - 3} of {given} tokens were left out]"
        self.assertEqual(self.write_files(), {"x.txt": f"{mark}\n\nAnswer\n"})

    def test_nothing_is_said_of_a_whole_prompt(self) -> None:
        self.write_results([self.answered("x", truncated=0)])
        self.assertEqual(self.write_files(), {"x.txt": "Answer\n"})
        self.assertNotIn("truncated", self.message)

    def test_no_id_leaves_the_folder(self) -> None:
        for request_id, name in (
            ("../x", "%2E%2E/x.txt"),
            ("/etc/x", "%2F/etc/x.txt"),
            ("a\nb%", "a%0Ab%25.txt"),
            ("é#001", "é#001.txt"),
        ):
            self.assertEqual(file_name(request_id), name)

    def test_names_that_are_too_long_for_a_file_stay_different(self) -> None:
        a, b = (file_name("é" * 200 + end) for end in "ab")
        self.assertNotEqual(a, b)
        for name in (a, b):
            self.assertLessEqual(len(name.encode()), LONGEST_NAME_BYTES + len(".txt"))

    def test_two_requests_for_one_file_are_refused_and_nothing_is_written(self) -> None:
        self.write_results([self.answered("a.txt/b"), self.answered("a")])
        self.assert_refused("'a'", "'a.txt/b'", "--jsonl", call=self.write_files)
        self.assertFalse((self.folder / "text").exists())


class Questions(TextRun):
    """Of requests with several turns."""

    def rows(self) -> list[dict[str, object]]:
        return [
            {"id": "f", "turn": 0, "state": DONE, "slots": 0, "prompt": 4},
            self.answered("f", "One", turn=1),
            self.answered("f", "Two", turn=2),
        ]

    def shard(self) -> None:
        end = "<|im_end|>\n<|im_start|>assistant\n"
        turns = ["<|im_start|>user\nThe book.\n\n", f"Who?{end}", f"What\nelse?{end}"]
        self.write_shard([{"id": "f", "turns": turns}], "fork")

    def test_questions_of_a_fork_stand_above_their_answers(self) -> None:
        self.shard()
        self.write_results(self.rows())
        self.assertEqual(
            self.write_files()["f.txt"],
            "--- turn 1 ---\n> Who?\n\nOne\n\n--- turn 2 ---\n> What\n> else?\n\nTwo\n",
        )

    def test_one_question_of_a_fork(self) -> None:
        self.shard()
        self.write_results(self.rows()[:2])
        self.assertEqual(self.write_files()["f.txt"], "> Who?\n\nOne\n")

    def test_document_that_was_truncated_is_marked_once(self) -> None:
        self.shard()
        self.identity["over_length"] = "truncate_middle"
        rows = self.rows()
        rows[0]["truncated"] = 6
        self.write_results(rows)
        text = self.write_files()["f.txt"]
        self.assertTrue(text.startswith("[the middle 6 of 10 tokens were left out]\n\n--- turn 1"))
        self.assertEqual(text.count("left out"), 1)
        usage = self.lines()["f@2"]["response"]["body"]["usage"]
        self.assertEqual(usage["prompt_tokens_details"]["truncated_tokens"], 6)

    def test_gap_between_finished_turns_is_named(self) -> None:
        self.shard()
        rows = self.rows()
        rows[1] = {"id": "f", "turn": 1, "state": OPEN, "slots": 9}
        self.write_results(rows)
        self.assertIn("> Who?\n\n[not answered yet]\n", self.write_files(code=3)["f.txt"])

    def test_chain(self) -> None:
        self.write_shard(
            [
                {
                    "id": "c",
                    "turns": [
                        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello"
                        "<|im_end|>\n<|im_start|>assistant\n",
                        "\n<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n",
                    ],
                }
            ]
        )
        self.write_results([self.answered("c", "Hi", turn=0), self.answered("c", "No", turn=1)])
        self.assertEqual(
            self.write_files()["c.txt"],
            "--- turn 0 ---\n> Hello\n\nHi\n\n--- turn 1 ---\n> And then?\n\nNo\n",
        )

    def test_prompts_without_the_template_lose_special_tokens_alone(self) -> None:
        self.write_shard([{"id": "c", "turns": ["<s>Tell me.", " More?"]}])
        self.write_results([self.answered("c", "Hi", turn=0), self.answered("c", "No", turn=1)])
        text = self.write_files()["c.txt"]
        self.assertIn("> Tell me.\n", text)
        self.assertIn("> More?\n", text)

    def test_long_prompts_are_shown_by_their_ends(self) -> None:
        words = "Begin. " + "the ring passes keys " * 300 + "Why?"
        self.write_shard([{"id": "c", "turns": [words, "More?"]}])
        self.write_results([self.answered("c", "Hi", turn=0), self.answered("c", "No", turn=1)])
        question = self.write_files()["c.txt"].splitlines()[1]
        tokens = len(self.encode(words))
        self.assertTrue(question.startswith("> Begin. the ring"), question)
        self.assertTrue(question.endswith("passes keys Why?"), question)
        self.assertIn(f"[… {tokens - 260:,} tokens …]", question)

    def test_without_prompts_turns_are_numbered(self) -> None:
        self.shard()
        self.write_results(self.rows())
        Path(self.inputs[0]).unlink()
        self.assertEqual(
            self.write_files("--no-prompts")["f.txt"],
            "--- turn 1 ---\nOne\n\n--- turn 2 ---\nTwo\n",
        )


class FindingTheShards(TextRun):
    def setUp(self) -> None:
        super().setUp()
        self.shard = self.write_shard([{"id": "x", "turns": ["one"], "custom_id": "name"}])

    def assert_found(self, *arguments: object) -> None:
        self.write_results([self.answered("x", prompt=1)])
        self.assertEqual(list(self.lines(*arguments)), ["name"])

    def test_where_the_run_found_it(self) -> None:
        self.assert_found()

    def test_relative_to_a_folder_above_the_run(self) -> None:
        self.inputs = ["p.h5"]
        self.assert_found()

    def test_moved(self) -> None:
        self.shard.rename(self.write("elsewhere/x", "").parent / "p.h5")
        self.write_results([self.answered("x", prompt=1)])
        self.assert_refused("p.h5", "--prompts", "--no-prompts", call=self.lines)
        self.assert_found("--prompts", self.folder / "elsewhere")
        self.assert_refused("p.h5", call=lambda: self.lines("--prompts", self.folder / "run"))
        self.assertEqual(list(self.lines("--no-prompts")), ["x"])

    def test_changed_since(self) -> None:
        with h5py.File(self.shard, "a") as file:
            file["tokens"][0] = 7
        self.write_results([self.answered("x", prompt=1)])
        self.assert_refused("p.h5", "has changed", call=self.lines)

    def test_of_another_run(self) -> None:
        self.write_results([self.answered("y", prompt=1)])
        self.assert_refused("p.h5", "'y'", call=self.lines)


class Index(TextRun):
    def rows(self) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.files()["index.csv"])))

    def test_every_turn_has_a_row_whatever_is_written(self) -> None:
        self.write_results(self.mixed_rows(), older=True)
        self.write_files("--only", "done", code=3)
        header = self.files()["index.csv"].splitlines()[0]
        self.assertEqual(
            header,
            "id,book,title,part,parts,turn,state,prompt_tokens,output_tokens,finish_reason,"
            "truncated_tokens,error,document_title,first_chapter,last_chapter,first_page,last_page",
        )
        rows = {row["id"]: row for row in self.rows()}
        self.assertEqual(
            [row["state"] for row in rows.values()], ["done", "done", "failed", "partial", "open"]
        )
        self.assertEqual(rows["bad"]["error"], "row 3: too long")
        self.assertEqual(rows["cut"]["finish_reason"], "length")
        self.assertEqual(rows["later"]["prompt_tokens"], "")
        self.assertEqual(rows["a/b"]["truncated_tokens"], "")  # an older run does not say

    def test_columns_of_a_part(self) -> None:
        part = {"book": "b", "title": 'Of "I", and Ω', "part": (1, 2), "span": (0, 9)}
        self.write_shard([{"id": "b#001", "turns": ["one"], "book_tokens": 20, **part}])
        self.write_results([self.answered("b#001", prompt=6, cached=2, truncated=3)])
        self.write_files()
        (row,) = self.rows()
        self.assertEqual(
            [row[key] for key in ("book", "title", "part", "parts", "turn")],
            ["b", 'Of "I", and Ω', "1", "2", "0"],
        )
        self.assertEqual([row["prompt_tokens"], row["truncated_tokens"]], ["8", "3"])


class FindingTheTokenizer(TextRun):
    def ids(self) -> list[str]:
        code, out, _ = quietly(text.main, self.run_folder, "--jsonl")
        self.assertEqual(code, 3)
        return [json.loads(line)["custom_id"] for line in out.splitlines()]

    def test_report_names_the_model(self) -> None:
        make_results(self.run_folder / "results.h5", self.mixed_rows())
        report = {"job": {"model": {"path": str(self.model)}}}
        (self.run_folder / "report.json").write_text(json.dumps(report))
        self.assertEqual(self.ids(), ["a/b", "cut", "bad"])

    def test_identity_names_it_while_there_is_no_report(self) -> None:
        make_results(
            self.run_folder / "results.h5",
            self.mixed_rows(),
            json.dumps({"model": str(self.model)}),
        )
        self.assertEqual(self.ids(), ["a/b", "cut", "bad"])

    def test_neither(self) -> None:
        make_results(self.run_folder / "results.h5", self.mixed_rows())
        self.assert_refused("--model", call=self.ids)

    def test_model_that_has_gone(self) -> None:
        make_results(
            self.run_folder / "results.h5",
            self.mixed_rows(),
            json.dumps({"model": "/nowhere/tiny"}),
        )
        self.assert_refused("/nowhere/tiny", "--model", call=self.ids)


class CommandLine(TextRun):
    def refused(self, *arguments: object) -> str:
        out = io.StringIO()
        with contextlib.redirect_stderr(out), self.assertRaises(SystemExit) as ended:
            text.main([str(argument) for argument in arguments])
        self.assertEqual(ended.exception.code, 2)
        return out.getvalue().splitlines()[-1]

    def test_unknown_arguments_are_named_in_their_order(self) -> None:
        self.assertEqual(
            self.refused("run", "--outptu", "x", "--verbose", "more", "--jsnol=1"),
            "pecia-text: error: unknown --outptu (did you mean --output?), x, --verbose, more, "
            "--jsnol=1 (did you mean --jsonl?)",
        )

    def test_help_has_examples_and_exit_codes(self) -> None:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), self.assertRaises(SystemExit):
            text.main(["--help"])
        self.assertIn("examples:\n  pecia-text runs/books --output texts/", out.getvalue())
        self.assertIn("Exit codes: 0", out.getvalue())

    def test_output_is_needed_for_texts(self) -> None:
        self.write_results([self.answered("a")])
        self.assert_refused("--output", "--jsonl", call=self.write_text)

    def test_finish_reason_is_for_texts(self) -> None:
        self.assert_refused("--finish-reason", call=lambda: self.lines("--finish-reason"))


class DamagedFiles(TextRun):
    def refuse(self, *parts: str) -> None:
        self.assert_refused("results.h5", *parts, call=lambda: self.write_text("--jsonl"))

    def test_absent_or_not_hdf5(self) -> None:
        self.refuse("no such")
        Path(self.run_folder, "results.h5").write_text("text")
        self.refuse("not a readable HDF5 file")

    def test_other_schema_missing_dataset_and_impossible_counts(self) -> None:
        path = make_results(self.run_folder / "results.h5", self.mixed_rows())
        with h5py.File(path, "a") as file:
            file["output_tokens"][1] = 4
        self.refuse("/output_tokens[1] is 4", "3 slots")
        with h5py.File(path, "a") as file:
            del file["error"]
        self.refuse("/error is missing")
        with h5py.File(path, "a") as file:
            file.attrs["schema"] = "pecia.prompts/1"
        self.refuse("pecia.prompts/1")
