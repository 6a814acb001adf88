# SPDX-License-Identifier: Apache-2.0
"""Many books at a time: what is bad in some of them stops no other."""

import importlib.util
import io
import os
import subprocess
import sys
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from unittest import mock

import h5py

from book_files import make_epub, make_pdf, named
from pecia_tools.pack import main as pack
from pecia_tools.pack.convert import DIED, Conversions
from pecia_tools.pack.decoding import BadInput, Decoder
from support import ScriptTest, make_model, quietly, read_turns

LIMIT_MIB = 700  # it took 358 on an AMD EPYC; 1145 where a book was encoded as a whole
# Python's start loads it as sitecustomize: a process that opens one of these files ends at once, or hangs.
HOOK = """\
import os, sys, time
def hook(event, arguments):
    if event == "open" and str(arguments[0]).endswith(("/3.html", "/7.html")):
        os._exit(9)
    if event == "open" and str(arguments[0]).endswith("/slow.html"):
        time.sleep(1000)
sys.addaudithook(hook)
"""


def bomb_pdf(size: int) -> bytes:
    """A page whose content becomes `size` bytes of text."""
    packer = zlib.compressobj(9)
    line = b"(x) Tj 0 -1 Td\n" * (1 << 16)
    drawn = packer.compress(b"BT /F1 1 Tf\n")
    drawn += b"".join(packer.compress(line) for _ in range(size // len(line))) + packer.flush()
    whole = make_pdf([["x"]])
    begin, end = whole.index(b"<< /Length"), whole.index(b"endstream")
    head = b"<< /Length %d /Filter /FlateDecode >>\nstream\n" % len(drawn)
    return whole[:begin] + head + drawn + b"\n" + whole[end:]


class Convert(ScriptTest):
    def texts(self, conversions: Conversions, paths: list[Path]) -> list[str]:
        """Each file's text, or what is wrong with it."""
        files = [named(path) for path in paths]
        sizes: list[int] = []
        conversions.run(files, sizes.append)
        self.assertEqual(sum(sizes), sum(path.stat().st_size for path in paths))
        found = []
        for file in files:
            try:
                found.append(conversions.document(file).text)
            except BadInput as problem:
                self.assertEqual(problem.where, str(file.path))
                found.append(problem.reason)
        return found

    def test_bad_files_stop_no_other(self) -> None:
        paths = [
            self.write("a.pdf", make_pdf([["First."]])),
            self.write("b.pdf", b"no pdf"),
            self.write("c.epub", make_epub({"1": "<p>Third.</p>"})),
            self.write("d.html", b"<p>caf\xe9</p>"),
            self.write("e.docx", b"no docx"),
        ]
        with Conversions(Decoder(), 2) as conversions:
            first, second, third, fourth, fifth = self.texts(conversions, paths)
        self.assertEqual((first, third), ("First.", "Third."))
        self.assertIn("not a readable PDF", second)
        self.assertIn("0xe9", fourth)
        self.assertIn("not a readable DOCX", fifth)

    def test_archive_that_would_become_endlessly_large(self) -> None:
        file = io.BytesIO(make_epub({"1": "<p>x</p>"}))
        with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
            for number in range(3):
                archive.writestr(f"{number}.xhtml", b" " * 1_000_000)
        paths = [self.write("a.epub", file.getvalue()), self.write("b.docx", file.getvalue())]
        book = replace(named(paths[0]), max_bytes=1 << 20)
        files = [book, replace(book, path=paths[1], kind="docx")]
        with Conversions(Decoder(), 2) as conversions:
            conversions.run(files, lambda _: None)
            for bomb in files:
                self.assert_refused(
                    *(
                        bomb.path.name,
                        "has more than 1048576 bytes, decompressed",
                        " become 300",
                    ),
                    call=lambda bomb=bomb: conversions.document(bomb),
                )

    def test_file_that_needs_too_much_memory_stops_no_other(self) -> None:
        paths = [
            self.write("a.html", "<p>a</p>" * 1_000_000),
            self.write("b.pdf", make_pdf([["b"]])),
            self.write("c.pdf", bomb_pdf(1 << 26)),
        ]
        with Conversions(Decoder(), 1, limit_bytes=200 << 20) as conversions:
            first, second, third = self.texts(conversions, paths)
        self.assertEqual((first, second), ("needs more than 200 MiB of memory to be read", "b"))
        self.assertEqual(third, DIED)

    def test_book_with_a_wrong_name_is_read_as_what_it_is(self) -> None:
        book = self.write("a.pdf", make_epub({"1": "<p>An EPUB.</p>"}))
        with Conversions(Decoder(), 1) as conversions:
            self.assertEqual(self.texts(conversions, [book]), ["An EPUB."])

    def test_replaced_bytes_are_told(self) -> None:
        path = self.write("d.html", b"<p>caf\xe9</p>")
        with Conversions(Decoder("utf-8", True), 1) as conversions:
            self.assertEqual(self.texts(conversions, [path]), ["caf\ufffd"])
            self.assertIn("replaced 1 byte", conversions.notes[path][0])

    def read_with_hook(self, names: list[str], limit_s: int) -> list[str]:
        hooks = self.write("hooks/sitecustomize.py", HOOK).parent
        paths = [self.write(f"{name}.html", f"<p>{name}</p>") for name in names]
        python_path = f"{hooks}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        environment = mock.patch.dict(os.environ, PYTHONPATH=python_path)
        with environment, Conversions(Decoder(), 2, limit_s) as conversions:
            return self.texts(conversions, paths)

    def test_file_that_ends_its_process_is_found_among_the_others(self) -> None:
        names = [str(number) for number in range(12)]
        found = self.read_with_hook(names, 600)
        self.assertEqual(found, [DIED if name in "37" else name for name in names])

    def test_pdf_of_5000_pages_takes_little_memory(self) -> None:
        lines = [" ".join(f"{page}.{word} copies" for word in range(6)) for page in range(5000)]
        bookmarks = [(f"CHAPTER {n}", 50 * n) for n in range(100)]
        book = self.write("book.pdf", make_pdf([[line] * 8 for line in lines], bookmarks))
        model, output = make_model(self.folder / "tiny"), self.folder / "out.h5"
        code = "import sys; from pecia_tools.pack.main import main; sys.exit(main(sys.argv[1:]))"
        options = ("--split-at", "chapter", "--split-tokens", "8000", "--processes", "1")
        command = [sys.executable, "-c", code, book, "--model", model, "--output", output, *options]
        with subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True) as packing:
            assert packing.stderr is not None
            said = packing.stderr.read()
            _, status, used = os.wait4(packing.pid, 0)
            packing.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(packing.returncode, 0, said)
        print(f"{used.ru_maxrss / 1024:.0f} MiB", flush=True)
        self.assertLess(used.ru_maxrss / 1024, LIMIT_MIB)
        with h5py.File(output) as file:
            kinds = file["positions/kind"][:]
            labels = {label.decode() for label in file["positions/label"][:][kinds == 1]}
            self.assertEqual(labels, {str(page) for page in range(1, 5001)})

    def test_file_that_takes_too_long_stops_no_other(self) -> None:
        self.assertEqual(self.read_with_hook(["a", "slow", "b"], 5), ["a", DIED, "b"])


class PackBooks(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.write("books/a.pdf", make_pdf([["One."], []]))
        self.write("books/deep/b.epub", make_epub({"1": "<p>Two.</p>"}))
        self.write("books/c.pdf", b"no pdf")
        self.write("books/cover.jpg", b"\xff\xd8")
        model = make_model(self.folder / "tiny")
        self.shard = self.folder / "out.h5"
        self.arguments = ["--model", model, "--output", self.shard, self.folder / "books"]

    def test_folder_of_books(self) -> None:
        code, _, said = quietly(pack.main, *self.arguments, "--processes", 2)
        self.assertEqual((code, list(read_turns(self.shard))), (3, ["a", "deep/b"]))
        self.assertIn("a.pdf: 1 of 2 pages have no text: 2", said)
        self.assertIn("skipped 1, listed in", said)
        self.assertIn("c.pdf: not a readable PDF", said)

    def test_strict_names_a_bad_book_before_anything_is_written(self) -> None:
        self.assert_refused(
            *("c.pdf: not a readable PDF", "without --strict"),
            call=lambda: quietly(pack.main, *self.arguments, "--strict"),
        )
        self.assertFalse(self.shard.exists())

    def test_missing_package_is_named_with_what_installs_it(self) -> None:
        found = importlib.util.find_spec

        def without(name: str) -> object:
            return None if name == "pypdfium2" else found(name)

        with mock.patch("importlib.util.find_spec", without):
            self.assert_refused(
                *("a.pdf: is read with the Python package pypdfium2", "pecia-setup books"),
                call=lambda: quietly(pack.main, *self.arguments),
            )
