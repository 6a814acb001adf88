# SPDX-License-Identifier: Apache-2.0
"""Rows of parquet and Arrow files become documents."""

from pathlib import Path
from typing import Any, Optional

import pyarrow
from pyarrow import feather, ipc, parquet

from book_files import named
from pecia_tools.pack.columns import Columns
from pecia_tools.pack.decoding import BadInput
from pecia_tools.pack.inputs import Document
from pecia_tools.pack.read_table import read_rows
from support import ScriptTest

IDS, TEXTS = ["b", "a", "c"], ["Two.", " One. ", None]


class ReadTable(ScriptTest):
    def table(self, **columns: Any) -> pyarrow.Table:
        return pyarrow.table(columns or {"id": IDS, "text": TEXTS, "year": [1, 2, 3]})

    def write_table(self, name: str, table: pyarrow.Table) -> Path:
        path = self.folder / name
        if name.endswith(".parquet"):
            parquet.write_table(table, path, row_group_size=2)
        elif name.endswith(".feather"):
            feather.write_feather(table, path)
        else:
            with ipc.new_stream(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=2)
        return path

    def read(
        self, path: Path, text: str = "text", id_column: Optional[str] = None
    ) -> list[tuple[str, str]]:
        """(name, text) of each row; of a bad one where it is, and why."""
        return [
            (found.where.replace(f"{self.folder}/", ""), found.reason)
            if isinstance(found, BadInput)
            else (found.name, found.text)
            for found in read_rows(named(path), text, id_column)
        ]

    def test_rows_keep_their_ids_in_every_format(self) -> None:
        for name in ("t.parquet", "t.feather", "t.arrow"):
            with self.subTest(name):
                self.assertEqual(
                    self.read(self.write_table(name, self.table())),
                    [
                        ("b", "Two."),
                        ("a", "One."),
                        (f"{name}:3", "the column 'text' has no text in this row"),
                    ],
                )

    def test_columns_by_name_and_rows_without_ids(self) -> None:
        path = self.write_table("t.parquet", self.table(body=["x", "y"], key=[7, 8]))
        self.assertEqual(self.read(path, "body", "key"), [("7", "x"), ("8", "y")])
        self.assertEqual(self.read(path, "body"), [("t/1", "x"), ("t/2", "y")])

    def test_columns_that_a_template_names(self) -> None:
        for name in ("t.parquet", "t.arrow"):
            path = self.write_table(name, self.table(id=["a", "b"], year=[1900, None], more=[1, 2]))
            columns = Columns(frozenset({"year"}), frozenset({"year"}), needs_text=False)
            good, bad = read_rows(named(path), "text", None, columns)
            self.assertEqual((good.name, good.text, good.columns), ("a", "", {"year": "1900"}))
            self.assertEqual((bad.name, bad.where), ("b", f"{path}:2"))
            self.assertIn("'year' has no value here", bad.reason)
            other = Columns(frozenset({"yeer"}), frozenset({"yeer"}), needs_text=False)
            (problem,) = read_rows(named(path), "text", None, other)
            self.assertIn("has no column 'yeer', which the template names; did you", problem.reason)

    def test_texts_of_a_dictionary(self) -> None:
        column = pyarrow.array(["x", "y", "x"]).dictionary_encode()
        path = self.write_table("t.arrow", self.table(text=column))
        self.assertEqual([text for _, text in self.read(path)], ["x", "y", "x"])

    def test_column_that_is_not_there_or_holds_no_text(self) -> None:
        path = self.write_table("t.parquet", self.table())
        ((where, reason),) = self.read(path, "txt")
        self.assertEqual(where, "t.parquet")
        self.assertIn("has no column 'txt'; did you mean 'text'?", reason)
        self.assertIn("--text-column", reason)
        self.assertIn("it has id, text, year", self.read(path, "body")[0][1])
        self.assertIn("holds int64, no text", self.read(path, "year")[0][1])
        self.assertIn("--id-column", self.read(path, "text", "key")[0][1])

    def test_damaged_file_is_one_problem(self) -> None:
        path = self.write_table("t.parquet", self.table())
        path.write_bytes(path.read_bytes()[:-20])
        ((where, reason),) = self.read(path)
        self.assertEqual(where, "t.parquet")
        self.assertIn("cannot be read", reason)

    def test_rows_can_be_cited(self) -> None:
        path = self.write_table("t.parquet", self.table(text=["x"]))
        (found,) = read_rows(named(path), "text", None)
        assert isinstance(found, Document)
        self.assertIsNotNone(found.structure)
