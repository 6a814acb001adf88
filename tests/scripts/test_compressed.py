# SPDX-License-Identifier: Apache-2.0
"""gzip and Zstandard files of text and of lines."""

import gzip
import unittest

import zstandard
from book_files import named
from pecia_tools.decoding import Decoder
from pecia_tools.formats import format_of
from pecia_tools.inputs import read_document, read_lines
from support import ScriptTest

TEXT = "".join(f"Line {n} of the text.\n" for n in range(50_000))
COMPRESSORS = {".gz": gzip.compress, ".zst": zstandard.compress}


class Compressed(ScriptTest):
    def test_documents_and_lines(self) -> None:
        for suffix, compress in COMPRESSORS.items():
            with self.subTest(suffix):
                file = named(self.write(f"a.txt{suffix}", compress(TEXT.encode())))
                self.assertEqual(file.name, "a")
                self.assertEqual(read_document(file, Decoder()).text, TEXT.strip())
                lines = named(self.write(f"a.jsonl{suffix}", compress(TEXT.encode())))
                found = list(read_lines(lines, Decoder()))
                self.assertEqual("".join(str(text) for _, text, _ in found), TEXT)

    def test_several_frames_are_one_text(self) -> None:
        for suffix, compress in COMPRESSORS.items():
            data = compress(b"one, ") + compress(b"two")
            file = named(self.write(f"a.txt{suffix}", data))
            self.assertEqual(read_document(file, Decoder()).text, "one, two")

    def test_file_that_was_cut_off_or_damaged_is_no_shorter_text(self) -> None:
        for suffix, compress in COMPRESSORS.items():
            whole = compress(TEXT.encode())
            for what, data in (("cut", whole[:-100]), ("no", b"no such thing")):
                with self.subTest(suffix, what=what):
                    name = f"{what}.txt{suffix}"
                    file = named(self.write(name, data))
                    self.assert_refused(
                        *(name, "damaged"), call=lambda f=file: read_document(f, Decoder())
                    )
                    lines = named(self.write(f"{what}.jsonl{suffix}", data))
                    *_, (_, last, _) = read_lines(lines, Decoder())
                    self.assertIn("damaged", str(last))


class Formats(ScriptTest):
    def test_names_say_what_a_file_holds(self) -> None:
        for name, expected in (
            ("a.TXT", ("text", "", "a", True)),
            ("a.b.md.gz", ("text", "gzip", "a.b", True)),
            ("a.html.zst", ("html", "zstd", "a", True)),
            ("a.pdf", ("pdf", "", "a", True)),
            ("a.pdf.gz", ("pdf", "", "a.pdf", False)),
            ("LGPL-2.1", ("text", "", "LGPL-2.1", False)),
            ("a.gz", ("text", "gzip", "a", False)),
        ):
            self.assertEqual(format_of(self.folder / name), expected)
        self.assertEqual(format_of(self.folder / "a.dat", "pdf")[:3], ("pdf", "", "a.dat"))


if __name__ == "__main__":
    unittest.main()
