# SPDX-License-Identifier: Apache-2.0
"""Files of foreign/, which other programs made, whole and damaged."""

from __future__ import annotations

import unittest
from importlib import import_module
from pathlib import Path

from book_files import cited, named
from pecia_tools.pack.convert import Conversions
from pecia_tools.pack.decoding import BadInput, Decoder
from pecia_tools.pack.headings import Outline
from pecia_tools.pack.inputs import Document, read_document
from pecia_tools.pack.read_table import read_rows
from pecia_tools.pack.structure import StructuredText
from support import ScriptTest

FOREIGN = Path(__file__).parent / "foreign"
BOOKS = ("scribes.docx", "scribes.epub", "scribes.2.epub", "scribes.html", "scribes.pdf")
EXEMPLAR = "A stationer kept an exemplar in loose quires."
COPIED = "A naïve scribe copied what he saw"


def read_book(name: str) -> StructuredText:
    kind = name.rpartition(".")[2]
    found = import_module(f"pecia_tools.pack.read_{kind}").read((FOREIGN / name).read_bytes(), Decoder())
    assert isinstance(found, StructuredText)
    return found


class Books(unittest.TestCase):
    def test_all_words_are_read_in_their_order(self) -> None:
        for name in BOOKS:
            with self.subTest(name):
                found = read_book(name)
                self.assertEqual(found.structure.title, "The Scribes")
                at = 0
                text = found.text.replace("\n", " ")
                for words in (
                    *("The exemplar", "in loose quires, peciae in Latin.", "copies grew at once."),
                    *("Bologna had rules by 1275.", "by 1304 — two deniers for “a text”."),
                    *("The copy", "The scribe’s day", f"{COPIED}: coffee-brown stains,"),
                    *("nis, and Ångström’s name", "Quires", "180", "The end", "the book ends."),
                ):
                    at = text.index(words, at) + len(words)
                self.assertIn("A quire was proofread before it was hired out.", text)

    def test_chapters_stand_where_their_titles_do(self) -> None:
        for name in BOOKS:
            with self.subTest(name):
                chapters = {
                    label: (depth, text)
                    for kind, depth, label, text in cited(read_book(name))
                    if kind == "chapter"
                }
                self.assertEqual(chapters.keys() - {"The Scribes"}, self.titles(name))
                for title, (depth, text) in chapters.items():
                    self.assertTrue(
                        text.replace("’", "'").startswith(title.replace("’", "'")), text
                    )
                    self.assertEqual(depth, 2 if "day" in title or "end" in title else 1, title)

    def titles(self, name: str) -> set[str]:
        apostrophe = "'" if name.endswith(".pdf") else "’"  # Typst's bookmarks have a plain one
        return {"The exemplar", "The copy", f"The scribe{apostrophe}s day", "The end"}

    def test_lists_and_tables_keep_their_lines(self) -> None:
        for name in BOOKS:
            if name.endswith(".pdf"):
                continue
            with self.subTest(name):
                text = read_book(name).text
                self.assertIn("\n\n- Bologna had rules by 1275.\n- Paris had a tariff", text)
                self.assertIn("\n\nQuires\tDays\n4\t12\n57\t180\n\n", text)

    def test_bookmarks_and_pages_of_a_pdf(self) -> None:
        self.assertEqual(
            [
                (kind, label, text.split("\n")[0])
                for kind, _, label, text in cited(read_book("reportlab.pdf"))
            ],
            [
                ("chapter", "The exemplar", "The exemplar"),
                ("chapter", "The copy", "The copy"),
                ("page", "1", "The exemplar"),
                ("page", "2", "The copy"),
            ],
        )


class Markdown(unittest.TestCase):
    TITLES = ("The exemplar", "The copy", "The scribe's day", "The end")

    def outline(self, name: str) -> list[tuple[int, str]]:
        text = read_document(named(FOREIGN / name), Decoder()).text
        self.assertIn("Here the book ends.", text)
        return [(heading.depth, heading.title) for heading in Outline(text).headings]

    def test_headings_are_found_without_their_attributes(self) -> None:
        wanted = list(zip((1, 1, 2, 2), self.TITLES))
        for name, before in (
            ("scribes.md", []),
            ("docx.md", []),  # underlined
            ("epub.md", []),
            ("html.md", [(1, "The Scribes")]),  # {#the-scribes .title}
        ):
            with self.subTest(name):
                self.assertEqual(self.outline(name), [*before, *wanted])

    def test_compressed_text_is_the_same(self) -> None:
        whole = read_document(named(FOREIGN / "scribes.md"), Decoder()).text
        for suffix in ("gz", "zst"):
            found = named(FOREIGN / f"scribes.md.{suffix}")
            self.assertEqual(read_document(found, Decoder()).text, whole)


class Damaged(ScriptTest):
    def test_no_damage_stops_the_other_files(self) -> None:
        paths = []
        for name in (*BOOKS, "reportlab.pdf"):
            whole = (FOREIGN / name).read_bytes()
            middle = len(whole) // 2
            paths.append(self.write(name, whole))
            for place, content in (
                ("cut", whole[:middle]),
                ("zeros", whole[:middle] + bytes(40) + whole[middle + 40 :]),
                ("ones", whole[: middle // 2] + b"\xff" * 9 + whole[middle // 2 + 9 :]),
                ("empty", b""),
            ):
                paths.append(self.write(f"{place}.{name}", content))
        files = [named(path) for path in paths]
        texts, problems = {}, {}
        with Conversions(Decoder(), 2) as conversions:
            conversions.run(files, lambda read_bytes: None)
            for file in files:
                try:
                    texts[file.path.name] = conversions.document(file).text
                except BadInput as problem:
                    self.assertEqual(problem.where, str(file.path))
                    self.assertGreater(len(problem.reason), 10)
                    problems[file.path.name] = problem.reason
        for name in (*BOOKS, "reportlab.pdf"):
            self.assertIn(name, texts)
            self.assertIn(f"empty.{name}", problems)
            if name.endswith(("docx", "epub")):  # archives have checksums
                self.assertIn(f"cut.{name}", problems)
                for place in ("zeros", "ones"):  # perhaps of what nobody reads
                    self.assertEqual(texts.get(f"{place}.{name}", texts[name]), texts[name])


class Tables(ScriptTest):
    NAMES = (
        *("duckdb.parquet", "fastparquet.parquet"),
        *("polars.arrow", "polars.stream.arrow", "polars.feather"),
    )

    def test_rows_of_other_writers(self) -> None:
        for name in self.NAMES:
            with self.subTest(name):
                found = list(read_rows(named(FOREIGN / name), "text", None))
                texts = [(row.name, row.text) for row in found if isinstance(row, Document)]
                self.assertEqual(texts, [("exemplar", EXEMPLAR), ("copy", f"{COPIED}.")])
                bad = [row.reason for row in found if isinstance(row, BadInput)]
                self.assertEqual(len(bad), 0 if name.startswith("fast") else 1, bad)

    def test_damaged_tables_are_told(self) -> None:
        for name in self.NAMES:
            with self.subTest(name):
                whole = (FOREIGN / name).read_bytes()
                end = -9 if "stream" not in name else len(whole) // 2  # a stream needs no end mark
                *_, problem = read_rows(named(self.write(name, whole[:end])), "text", None)
                assert isinstance(problem, BadInput)
                self.assertIn("cannot be read", problem.reason)


class Encodings(ScriptTest):
    TEXT = f"{COPIED}, “twice”."

    def read(self, name: str, encoding: str = "utf-8") -> str:
        return read_document(named(FOREIGN / name), Decoder(encoding)).text

    def test_wrong_encoding_is_refused_and_the_right_one_reads(self) -> None:
        for name, right, reason in (
            ("cp1252.txt", "cp1252", "(0xef) is not utf-8"),
            ("utf16.txt", "utf-16", "try --encoding utf-16"),
        ):
            self.assert_refused(name, reason, call=lambda name=name: self.read(name))
            self.assertEqual(self.read(name, right), self.TEXT)
