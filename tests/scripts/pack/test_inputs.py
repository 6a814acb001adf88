# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path
from typing import Union

from pecia_tools.pack.decoding import BadInput, Decoder
from pecia_tools.pack.find_files import find_files
from pecia_tools.pack.inputs import InputFile, Sampling, read_document, read_lines
from support import ScriptTest


def find(*arguments: object, patterns: tuple[str, ...] = ()) -> list[Union[InputFile, BadInput]]:
    return find_files([str(a) for a in arguments], patterns, "auto").files


class FindFiles(ScriptTest):
    def test_folder_is_searched_recursively_in_sorted_order(self) -> None:
        for name in ("b.txt", "a.md", "deep/er/c.jsonl", "deep/d.pdf"):
            self.write(name, "x")
        found = find(self.folder)
        self.assertEqual([f.name for f in found], ["a", "b", "deep/d", "deep/er/c"])
        self.assertEqual([f.kind for f in found], ["text", "text", "pdf", "jsonl"])

    def test_glob_replaces_the_patterns(self) -> None:
        self.write("b.txt", "x")
        self.write("c.rst", "x")
        found = find(self.folder, patterns=("*.rst",))
        self.assertEqual([f.path.name for f in found], ["c.rst"])

    def test_file_without_suffix_keeps_its_name(self) -> None:
        self.assertEqual([f.name for f in find(self.write("LGPL-2.1", "x"))], ["LGPL-2.1"])

    def test_what_is_not_there_does_not_hide_the_rest(self) -> None:
        (self.folder / "empty").mkdir()
        found = find("absent.txt", self.folder / "empty", self.write("a.txt", "x"))
        self.assertIn("absent.txt: no such", str(found[0]))
        self.assertIn("--glob", str(found[1]))
        self.assertEqual(found[2].name, "a")

    def test_argument_that_the_system_refuses(self) -> None:
        self.assertIn("cannot be read (File name too long)", str(find("x" * 5000)[0]))

    def test_link_that_leads_nowhere_is_found(self) -> None:
        (self.folder / "a.txt").symlink_to("absent")
        self.assertIn("a.txt: a link that leads nowhere", str(find(self.folder)[0]))

    def test_name_that_no_request_can_have(self) -> None:
        Path(os.fsdecode(os.fsencode(self.folder) + b"/\xff.txt")).write_text("x")
        self.assertIn("is not UTF-8. Rename it", str(find(self.folder)[0]))

    def test_pipe_is_read_once_and_gives_the_same_again(self) -> None:
        reading, writing = os.pipe()
        os.write(writing, b"from a pipe")
        os.close(writing)
        (file,) = find(f"/dev/fd/{reading}")
        texts = [read_document(file, Decoder()).text for _ in range(2)]
        os.close(reading)
        self.assertEqual(texts, ["from a pipe"] * 2)


class ReadDocument(ScriptTest):
    def read(self, content: bytes) -> str:
        return read_document(find(self.write("a.txt", content))[0], Decoder()).text

    def test_byte_order_mark_and_blank_ends_go(self) -> None:
        self.assertEqual(self.read("\ufeff\n  Café.\n\n".encode()), "Café.")

    def test_empty_document_is_refused(self) -> None:
        self.assert_refused("a.txt", "empty", call=lambda: self.read(b" \n\t\n"))

    def test_file_that_goes_away_is_refused(self) -> None:
        (file,) = find(self.write("a.txt", "x"))
        file.path.unlink()
        self.assert_refused(
            "a.txt: cannot be read (No such file", call=lambda: read_document(file, Decoder())
        )


class ReadLines(ScriptTest):
    def read(self, content: bytes, decoder: Decoder) -> list[tuple[str, str]]:
        (file,) = find(self.write("a.jsonl", content))
        return [
            (where.rpartition(":")[2], str(text)) for where, text, _ in read_lines(file, decoder)
        ]

    def test_bad_line_does_not_hide_the_next(self) -> None:
        (_, first), (_, second), (number, third) = self.read(b"{}\n\xff\n\n[]\n", Decoder())
        self.assertEqual((first, third, number), ("{}\n", "[]\n", "4"))
        self.assertIn("a.jsonl:2: byte 3 (0xff) is not utf-8", second)

    def test_file_without_lines_is_refused(self) -> None:
        self.assertIn("holds no requests", self.read(b"\n \n", Decoder())[0][1])

    def test_encoding_in_which_lines_cannot_be_told(self) -> None:
        content = "{}\n".encode("utf-16")
        self.assertIn("Convert the file to UTF-8", self.read(content, Decoder("utf-16"))[0][1])


class Defaults(ScriptTest):
    def test_own_options_come_first_and_what_is_zero_or_empty_counts_as_given(self) -> None:
        own = Sampling(temperature=0.0, stop=())
        self.assertEqual(own.over(Sampling(7, 0.5, stop=(".",))), Sampling(7, 0.0, stop=()))
