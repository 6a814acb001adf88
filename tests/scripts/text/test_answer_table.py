# SPDX-License-Identifier: Apache-2.0
"""Answers as tables, and where in their documents the texts stand that they are about."""

import csv
import io
from typing import Any
from unittest import mock

from pyarrow import parquet

from pecia_tools.pack.structure import CHAPTER, PAGE, Position
from pecia_tools.runs.citations import Citation
from text_run import DONE, OPEN, TextRun

SOURCE = {
    "document_title": "The Scribes",
    "first_chapter": "1.2 Ink",
    "last_chapter": "2 Quills",
    "first_page": "ix",
    "last_page": "2",
}


class TableRun(TextRun):
    def write_run(self) -> None:
        """A part with positions, and a fork with two questions, one of them open."""
        positions = [
            Position(PAGE, 0, "ix", 100, 150),
            Position(CHAPTER, 1, "1 Tools", 100, 180),
            Position(CHAPTER, 2, "1.2 Ink", 100, 180),
            Position(PAGE, 0, "1", 150, 190),
            Position(CHAPTER, 1, "2 Quills", 180, 200),
            Position(PAGE, 0, "2", 190, 200),
        ]
        part = {"book": "s", "title": "1.2 Ink", "part": (2, 3), "span": (5, 9), "book_tokens": 20}
        requests = [
            {"id": "s#002", "turns": ["one"], "positions": positions, **part},
            {"id": "f", "turns": ["The book.", "Who?", "Why?"], "part": (1, 1)},
        ]
        requests[0]["document_title"] = "The Scribes"
        self.write_shard(requests, "fork")
        self.write_results(
            [
                self.answered("s#002", 'Ink, "black"\nand red.', prompt=4, cached=3),
                {"id": "f", "turn": 0, "state": DONE, "slots": 0, "prompt": 4},
                self.answered("f", "A scribe", turn=1),
                {"id": "f", "turn": 2, "state": OPEN, "slots": 9},
            ]
        )

    def source(self, row: dict[str, Any]) -> dict[str, Any]:
        return {key: row[key] for key in SOURCE}


class Tables(TableRun):
    def test_csv_has_a_row_for_each_answer(self) -> None:
        self.write_run()
        part, question = csv.DictReader(io.StringIO(self.write_text("--csv", code=3)))
        self.assertEqual(part["answer"], 'Ink, "black"\nand red.')
        self.assertEqual(
            [part[key] for key in ("id", "book", "part", "parts", "prompt_tokens", "question")],
            ["s#002", "s", "2", "3", "7", ""],
        )
        self.assertEqual(self.source(part), SOURCE)
        self.assertEqual((question["question"], question["answer"]), ("Who?", "A scribe"))
        self.assertEqual(set(self.source(question).values()), {""})
        self.assertIn("2 rows written, 1 left out (1 open) · turns:", self.last_line)

    def test_no_cell_is_a_formula_or_a_command(self) -> None:
        answers = {
            "=cmd|' /C calc'!A0": "'=cmd|' /C calc'!A0",
            "@SUM(1)": "'@SUM(1)",
            "- first": "'- first",
            "+x": "'+x",
            "\t=1": "'\t=1",
            "-12": "-12",
            "+1.5e3": "+1.5e3",
            "1=1": "1=1",
            "a\x1b[2Jb\nc\t\x9b": "a\\x1b[2Jb\nc\t\\x9b",
        }
        rows = [self.answered(f"={n}\x1b", answer) for n, answer in enumerate(answers)]
        self.write_results(rows)
        written = list(csv.DictReader(io.StringIO(self.write_text("--csv"), newline="")))
        self.assertEqual([row["answer"] for row in written], list(answers.values()))
        self.assertEqual(written[0]["id"], "'=0\\x1b")
        self.write_files()
        self.assertIn("'=0\\x1b,", self.files()["index.csv"])

    def test_parquet_has_the_same_with_types(self) -> None:
        self.write_run()
        path = self.folder / "out/answers.parquet"
        self.write_text("--parquet", "--output", path, code=3)
        part, question = parquet.read_table(path).to_pylist()
        self.assertEqual(part["answer"], 'Ink, "black"\nand red.')
        self.assertEqual((part["part"], part["prompt_tokens"], part["question"]), (2, 7, None))
        self.assertEqual(self.source(part), SOURCE)
        self.assertEqual((question["turn"], question["question"]), (1, "Who?"))
        self.assertEqual(set(self.source(question).values()), {None})
        self.write_text("--parquet", "--output", path, code=3)  # again: it is its own

    def test_more_rows_than_are_written_at_once(self) -> None:
        self.write_results([self.answered(str(number)) for number in range(5)])
        path = self.folder / "answers.parquet"
        with mock.patch("pecia_tools.text.answer_table.ROWS_AT_ONCE", 2):
            self.write_text("--parquet", "--output", path)
        self.assertEqual(parquet.read_table(path)["id"].to_pylist(), list("01234"))

    def test_failed_turn_has_its_error_and_no_answer(self) -> None:
        self.write_results(self.mixed_rows())
        rows = {
            row["id"]: row for row in csv.DictReader(io.StringIO(self.write_text("--csv", code=3)))
        }
        self.assertEqual(list(rows), ["a/b", "cut", "bad"])
        self.assertEqual((rows["bad"]["error"], rows["bad"]["answer"]), ("row 3: too long", ""))

    def test_parquet_needs_a_file_and_tables_take_no_options_of_texts(self) -> None:
        self.write_run()
        self.assert_refused("--output FILE", call=lambda: self.write_text("--parquet"))
        self.assert_refused("--cite is for text", call=lambda: self.write_text("--csv", "--cite"))


class Citations(TableRun):
    def test_jsonl_has_the_source_where_it_is_known(self) -> None:
        self.write_run()
        lines = self.lines(code=3)
        expected = {"book": "s", "part": 2, "parts": 3, **SOURCE}
        self.assertEqual(lines["s#002"]["source"], expected)
        self.assertNotIn("source", lines["f@1"])

    def test_parts_of_a_book_say_their_pages(self) -> None:
        self.write_run()
        files = self.write_files(code=3)
        self.assertIn("=== part 2 of 3: 1.2 Ink (pages ix–2) ===\n", files["s.txt"])
        self.assertNotIn("[source", "".join(files.values()))

    def test_texts_name_their_source_on_wish(self) -> None:
        self.write_run()
        files = self.write_files("--cite", code=3)
        source = "\n\n[source: The Scribes, 1.2 Ink – 2 Quills, pages ix–2]\n"
        self.assertTrue(files["parts/s#002.txt"].endswith(source))
        self.assertNotIn("[source", files["f.txt"])

    def test_one_chapter_on_one_page(self) -> None:
        self.assertEqual(str(Citation("", ("A", "A"), ("7", "7"))), "A, page 7")
        self.assertEqual(str(Citation("T")), "T")
        self.assertEqual(str(Citation()), "")
