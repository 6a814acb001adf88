# SPDX-License-Identifier: Apache-2.0
"""gzip and Zstandard files of text and of lines."""

import gzip
import zlib
from dataclasses import replace
from pathlib import Path
from unittest import mock

import zstandard

from book_files import named
from pecia_tools.pack.convert import Conversions
from pecia_tools.pack.decoding import BadInput, Decoder
from pecia_tools.pack.find_files import find_files
from pecia_tools.pack.formats import format_of
from pecia_tools.pack.inputs import read_document, read_lines
from pecia_tools.pack.limits import memory_limit
from pecia_tools.pack.openai_batch import JobSettings
from pecia_tools.pack.sources import Reading, read_sources
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


class Bombs(ScriptTest):
    """Kilobytes that become gigabytes."""

    ZEROS = b"\0" * (1 << 20)

    def gzip_bomb(self, mib: int) -> bytes:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join(packer.compress(self.ZEROS) for _ in range(mib)) + packer.flush()

    def zstd_bomb(self, mib: int) -> bytes:
        packer = zstandard.ZstdCompressor().compressobj()
        return b"".join(packer.compress(self.ZEROS) for _ in range(mib)) + packer.flush()

    def test_bombs_are_refused_by_name_with_little_memory(self) -> None:
        # 1 GiB of address space is what the process may take besides.
        for suffix, data in ((".gz", self.gzip_bomb(400)), (".zst", self.zstd_bomb(2000))):
            for kind in ("txt", "jsonl", "csv"):
                path = self.write(f"a.{kind}{suffix}", data)
                self.assertLess(len(data), 2_000_000)
                with self.subTest(path.name), memory_limit(1 << 30):
                    (problem,) = everything_of(path)
                    self.assertIsInstance(problem, BadInput)
                    self.assertIn(
                        f"{path.name}: cannot be read (a decompression bomb", str(problem)
                    )

    def test_document_larger_than_the_limit(self) -> None:
        file = replace(named(self.write("a.txt.gz", gzip.compress(TEXT.encode()))), max_bytes=1000)
        self.assert_refused(
            *("a.txt.gz: has more than 1000 bytes, decompressed", "--max-file-bytes"),
            call=lambda: read_document(file, Decoder()),
        )
        whole = replace(file, max_bytes=len(TEXT.encode()))
        self.assertEqual(read_document(whole, Decoder()).text, TEXT.strip())

    def test_line_larger_than_the_limit_does_not_hide_the_next(self) -> None:
        with mock.patch("pecia_tools.pack.inputs.SKIPPED_BYTES", 64):
            text = b"{}\n" + b"x" * 1000 + b"\n[]\n"
            file = replace(named(self.write("a.jsonl", text)), max_bytes=100)
            (_, first, _), (where, second, _), (place, third, _) = read_lines(file, Decoder())
        self.assertEqual((first, third), ("{}\n", "[]\n"))
        self.assertTrue(where.endswith("a.jsonl:2") and place.endswith("a.jsonl:3"))
        self.assertIn("a.jsonl:2: the line has more than 100 bytes", str(second))

    def test_zstandard_window_that_takes_gigabytes_is_refused(self) -> None:
        parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=False)
        packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        path = self.write("a.txt.zst", packer.compress(TEXT.encode()) + packer.flush())
        self.assert_refused(
            "a.txt.zst: cannot be read", call=lambda: read_document(named(path), Decoder())
        )

    def test_compression_is_told_by_the_first_bytes(self) -> None:
        for name, compress in (("a.txt", gzip.compress), ("b.txt", zstandard.compress)):
            found = find_files([str(self.write(name, compress(TEXT.encode())))], (), "auto")
            (file,) = found.files
            self.assertEqual(read_document(file, Decoder()).text, TEXT.strip())
            self.assertIn("is compressed by", found.notes[file.path][0])
        tar = self.write("a.gz", gzip.compress(b"name".ljust(257, b"\0") + b"ustar"))
        (problem,) = find_files([str(tar)], (), "auto").files
        self.assertIn("is a tar archive, which is not read. Unpack it", str(problem))


def everything_of(path: Path) -> list[object]:
    conversions = Conversions(Decoder(), 1)
    with conversions:
        reading = Reading(Decoder(), JobSettings((), 0, 1), conversions, "text", None)
        return list(
            read_sources(find_files([str(path)], (), "auto").files, reading, lambda _: None)
        )


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
