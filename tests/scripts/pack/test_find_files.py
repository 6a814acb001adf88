# SPDX-License-Identifier: Apache-2.0
"""What arguments and folders name, by names and first bytes, and the names that documents get."""

import io
import os
import sys
import zipfile
from collections.abc import Sequence
from unittest import mock

from book_files import make_epub, make_pdf
from pecia_tools.pack.decoding import BadInput
from pecia_tools.pack.find_files import FoundFiles, find_files
from pecia_tools.pack.inputs import InputFile
from support import ScriptTest

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600


def make_zip(*members: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in members:
            archive.writestr(name, "x")
    return file.getvalue()


DOCX = make_zip("[Content_Types].xml", "_rels/.rels", "word/document.xml")


class FindTest(ScriptTest):
    def find(
        self, *arguments: object, patterns: Sequence[str] = (), form: str = "auto"
    ) -> FoundFiles:
        return find_files([str(a) for a in arguments], patterns, form)

    def one(self, name: str, content: object = "x", form: str = "auto") -> str:
        """The kind of a file that is named, or why it is refused."""
        (found,) = self.find(self.write(name, content), form=form).files
        return found.kind if isinstance(found, InputFile) else found.reason


class Folders(FindTest):
    def test_what_is_left_out_is_counted_by_kind(self) -> None:
        for name in (
            "a.txt",
            "b.PNG",
            "c.png",
            "LICENSE",
            "d/x.tar.gz",
            "d/m.json",
            ".git",
            "t.csv",
        ):
            self.write(f"docs/{name}", "x")
        found = self.find(self.folder / "docs")
        self.assertEqual([file.path.name for file in found.files], ["a.txt", "t.csv"])
        self.assertEqual(found.left_out_text(), "2 .png, 1 .json, 1 .tar.gz, 1 without a suffix")

    def test_pattern_leaves_out_what_its_user_does_not_want(self) -> None:
        for name in ("a.txt", "b.png", "c.rst"):
            self.write(f"docs/{name}", "x")
        found = self.find(self.folder / "docs", patterns=("*.rst",))
        self.assertEqual((len(found.files), found.left_out_text()), (1, ""))

    def test_folder_without_anything_to_read_says_what_it_has(self) -> None:
        self.write("docs/a.png", PNG)
        (problem,) = self.find(self.folder / "docs").files
        self.assertIn(
            "is of a kind that can be read; it has 1 .png. Name others with --glob", str(problem)
        )

    def test_documents_that_cannot_be_read_are_named(self) -> None:
        for name in ("a.odt", "b.rtf", "c.doc", "d.mobi", "e.xlsx"):
            self.write(f"docs/{name}", "x")
        found = self.find(self.folder / "docs")
        self.assertTrue(all(isinstance(file, BadInput) for file in found.files))
        self.assertEqual(
            [str(f).split(":")[0][-5:] for f in found.files], ["a.odt", "b.rtf", "c.doc", ".mobi"]
        )
        self.assertEqual(found.left_out_text(), "1 .xlsx")

    def test_pipe_in_a_folder_is_named(self) -> None:
        (self.folder / "docs").mkdir()
        os.mkfifo(self.folder / "docs/a.txt")
        self.assertIn("a.txt: is no regular file", str(self.find(self.folder / "docs").files[0]))


class Contents(FindTest):
    def test_first_bytes_go_before_the_name(self) -> None:
        for name, content, kind in (
            ("a.pdf", DOCX, "docx"),
            ("b.docx", make_pdf([["x"]]), "pdf"),
            ("c.zip", make_epub({"1": "<p>x</p>"}), "epub"),
            ("d.txt", b"\xef\xbb\xbf\n<!DOCTYPE HTML><p>x", "html"),
            ("e.txt", b"PAR1....", "table"),
            ("f.doc", DOCX, "docx"),
        ):
            with self.subTest(name):
                found = self.find(self.write(name, content))
                self.assertEqual(found.files[0].kind, kind)
                self.assertIn("and is read as such", found.notes[found.files[0].path][0])

    def test_what_is_as_its_name_says_has_no_note(self) -> None:
        for name, content, kind in (
            ("a.docx", DOCX, "docx"),
            ("b.pdf", make_pdf([["x"]]), "pdf"),
            ("c.html", "<html>x", "html"),
            ("NOTES", "a text {\\rtf}", "text"),
            ("d.txt", "<p>no page", "text"),
            ("e.md", "PK, he said", "text"),
            ("u.txt", "x".encode("utf-16"), "text"),
            ("cut.docx", DOCX[:40], "docx"),
            ("empty.pdf", b"", "pdf"),
        ):
            with self.subTest(name):
                found = self.find(self.write(name, content))
                self.assertEqual(getattr(found.files[0], "kind", "") or found.files[0].reason, kind)
                self.assertEqual(found.notes, {})

    def test_files_without_text_are_refused_by_what_they_are(self) -> None:
        for content, says in (
            (
                rb"{\rtf1 x}",
                "an RTF document, which is not read. Convert it with libreoffice --headless",
            ),
            (OLE, "a file of Microsoft Office 97"),
            (PNG, "a PNG picture, which is not read. Recognize its text first, as with ocrmypdf"),
            (b"\xff\xd8\xff\xe0", "a JPEG picture"),
            (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
            (b"\x7fELF\2", "a program"),
            (make_zip("a.txt"), "a ZIP archive, which is not read. Unpack it"),
            (make_zip("ppt/presentation.xml"), "a presentation of PowerPoint"),
            (make_zip("xl/workbook.xml"), "a spreadsheet of Excel"),
        ):
            for name in ("a.txt", "a", "a.pdf"):
                with self.subTest(says, name=name):
                    self.assertIn(f"is {says}", self.one(name, content))

    def test_open_document_is_told_by_its_first_member(self) -> None:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        self.assertIn("is an OpenDocument file", self.one("a.txt", file.getvalue()))

    def test_page_in_place_of_a_download_is_no_book(self) -> None:
        self.assertIn(
            "an HTML page, perhaps of an error", self.one("a.pdf", "<!doctype html>Sorry")
        )

    def test_files_named_by_their_user_that_cannot_be_read(self) -> None:
        self.assertIn("pecia-pack --format jsonl", self.one("a.json", "[]"))
        self.assertIn("is an OpenDocument text", self.one("a.odt", "x"))
        self.assertIn("convert-to csv", self.one("a.xlsx", "x"))

    def test_what_the_user_says_goes_before_all(self) -> None:
        self.assertEqual(self.one("a.json", "{}", form="text"), "text")
        self.assertEqual(self.one("a.txt", "<!doctype html>x", form="text"), "text")

    def test_standard_input_is_told_and_kept(self) -> None:
        pdf = make_pdf([["x"]])
        with mock.patch.object(sys, "stdin", mock.Mock(buffer=io.BytesIO(pdf))):
            (file,) = self.find("-").files
        self.assertEqual((file.kind, file.name, file.read()), ("pdf", "stdin", pdf))

    def test_list_of_a_zip_is_read_in_part(self) -> None:
        with mock.patch("pecia_tools.pack.contents._ZIP_NAMES_BYTES", 100):
            self.assertIn(
                "ZIP archive", self.one("a.zip", make_zip("x" * 200, "word/document.xml"))
            )


class Names(FindTest):
    def names(self, *arguments: object) -> list[str]:
        return [file.name for file in self.find(*arguments).files]

    def test_files_that_differ_in_the_suffix_keep_it(self) -> None:
        for name in ("a.txt", "a.md", "b.txt", "deep/a.txt", "deep/c.md", "deep/c.txt.gz"):
            self.write(f"docs/{name}", "x")
        expected = ["a.md", "a.txt", "b", "deep/a", "deep/c.md", "deep/c.txt.gz"]
        self.assertEqual(self.names(self.folder / "docs"), expected)
        docs = self.folder / "docs"
        self.assertEqual(self.names(docs / "a.txt", docs / "a.md"), ["a.txt", "a.md"])
        self.assertEqual(self.names(docs / "a.md", docs / "a.txt"), ["a.md", "a.txt"])

    def test_files_that_differ_in_the_folder_keep_it(self) -> None:
        for name in ("2020/x/a.txt", "2021/x/a.txt", "2021/x/b.txt"):
            self.write(name, "x")
        found = self.names(self.folder / "2020", self.folder / "2021")
        self.assertEqual(found, ["2020/x/a", "2021/x/a", "x/b"])
        os.chdir(self.folder)
        self.addCleanup(os.chdir, "/")
        self.assertEqual(self.names("2020/x/a.txt", "./2021/x/a.txt"), ["2020/x/a", "2021/x/a"])

    def test_both_may_be_needed(self) -> None:
        paths = [self.write(name, "x") for name in ("1/a.txt", "1/a.md", "2/a.txt")]
        self.assertEqual(self.names(*paths), ["1/a.txt", "1/a.md", "2/a.txt"])

    def test_file_that_is_named_twice_is_not_two_documents(self) -> None:
        path = self.write("docs/a.txt", "x")
        self.assertEqual(self.names(path, path), ["a", "a"])
        self.assertEqual(self.names(path, self.folder / "docs/../docs"), ["a", "a"])

    def test_rows_are_named_apart_from_documents(self) -> None:
        paths = [self.write(name, "text\nx\n") for name in ("a.txt", "a.csv", "a.jsonl")]
        self.assertEqual(self.names(*paths), ["a", "a.csv", "a.jsonl"])
