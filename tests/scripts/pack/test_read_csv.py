# SPDX-License-Identifier: Apache-2.0
"""Rows of CSV and TSV files become documents."""

import gzip
from dataclasses import replace
from typing import Optional

from book_files import named
from pecia_tools.pack.columns import Columns
from pecia_tools.pack.decoding import BadInput, Decoder
from pecia_tools.pack.inputs import Document
from pecia_tools.pack.read_csv import read_csv
from support import ScriptTest


class ReadCsv(ScriptTest):
    def read(
        self,
        content: object,
        name: str = "t.csv",
        text: str = "text",
        id_column: Optional[str] = None,
        decoder: Optional[Decoder] = None,
        max_bytes: int = 1 << 30,
    ) -> list[tuple[str, str]]:
        """(name, text) of each row; of a bad one where it is, and why."""
        file = replace(named(self.write(name, content)), max_bytes=max_bytes)
        return [
            (found.where.replace(f"{self.folder}/", ""), found.reason)
            if isinstance(found, BadInput)
            else (found.name, found.text)
            for found in read_csv(file, decoder or Decoder(), text, id_column)
        ]

    def test_quotes_lines_and_empty_lines(self) -> None:
        table = '\ufeffid,text,year\r\nb,"One, ""two"".\r\n\r\nThree.",1\r\n\r\na, x ,2\r\n'
        self.assertEqual(self.read(table), [("b", 'One, "two".\n\nThree.'), ("a", "x")])

    def test_delimiter_is_the_one_that_tells_the_column(self) -> None:
        for delimiter in ",;\t|":
            with self.subTest(delimiter):
                table = f"key{delimiter}text\nk{delimiter}v\n"
                self.assertEqual(self.read(table, id_column="key"), [("k", "v")])
        self.assertEqual(self.read("text\na,b;c\n", "t.tsv"), [("t.tsv:2", self.fields(2, 1, ","))])

    def fields(self, has: int, names: int, delimiter: str) -> str:
        return (
            f"the row has {has} fields, the first row of the file {names}. Put texts that have '{delimiter}' into "
            "quotes"
        )

    def test_bad_rows_stop_no_other(self) -> None:
        table = b'text,n\ngood,1\ntoo, many, commas\n,2\ncaf\xe9,3\n"a"b,4\nlast,5\n'
        self.assertEqual(
            self.read(table),
            [
                ("t/1", "good"),
                ("t.csv:3", self.fields(3, 2, ",")),
                ("t.csv:4", "the column 'text' has no text in this row"),
                ("t.csv:5", "byte 38 (0xe9) is not utf-8"),
                ("t.csv:6", "the row is not CSV (',' expected after '\"')"),
                ("t/6", "last"),
            ],
        )

    def test_quote_that_is_not_closed_is_no_text(self) -> None:
        self.assertEqual(
            self.read('text\n"a\nb\n'), [("t.csv:2", "the row is not CSV (unexpected end of data)")]
        )
        ((_, why),) = self.read('text\n"' + "a\n" * 100, max_bytes=50)
        self.assertIn("the row has more than 50 bytes", why)
        self.assertIn("perhaps a quote is not closed", why)

    def test_columns_that_a_template_names(self) -> None:
        path = self.write("t.csv", "id,year,note\na,1984,x\nb,,y\n")
        columns = Columns(frozenset({"year"}), frozenset({"year"}), needs_text=False)
        good, bad = read_csv(named(path), Decoder(), "text", None, columns)
        assert isinstance(good, Document) and isinstance(bad, BadInput)
        self.assertEqual((good.name, good.columns), ("a", {"year": "1984"}))
        self.assertEqual((bad.where, bad.name), (f"{path}:3", "b"))

    def test_columns_that_are_not_there(self) -> None:
        self.assertIn(
            "has no column 'txt'; did you mean 'text'?", self.read("text\nx\n", text="txt")[0][1]
        )
        self.assertIn("has no column 'text'; it has a, b", self.read("a,b\n1,2\n")[0][1])
        self.assertIn("its first line is empty", self.read("")[0][1])

    def test_encodings_and_compression(self) -> None:
        table = "id;text\n1;café\n"
        self.assertEqual(
            self.read(table.encode("cp1252"), decoder=Decoder("cp1252")), [("1", "café")]
        )
        self.assertEqual(self.read(gzip.compress(table.encode()), "t.csv.gz"), [("1", "café")])
        self.assertIn(
            "Convert the file to UTF-8", self.read(table, decoder=Decoder("utf-16"))[0][1]
        )
