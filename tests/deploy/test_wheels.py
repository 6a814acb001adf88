# SPDX-License-Identifier: Apache-2.0
"""The helpers of an installed tree on a machine without a network, from a folder of wheels: with pip, and without. They
read every kind of book, and draw a report."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
import unittest
import zipfile
from pathlib import Path
from typing import ClassVar

from harness import DONE, MPIEXEC, SOURCE, RunTest
from word_model import make_word_model, some_words

BUILD = Path(os.environ["PECIA_BUILD"])
CMAKE = os.environ["PECIA_CMAKE"]
WHEELS = SOURCE / "scripts/packaging/wheels.sh"
PYTHON = "/usr/bin/python3"
FOREIGN = SOURCE / "tests/scripts/books/foreign"
BOOKS = ("scribes.pdf", "scribes.epub", "scribes.html", "scribes.docx", "scribes.md.zst")
TABLE = "fastparquet.parquet"  # of two rows


def alone() -> list[str]:
    """What keeps a command from the network; nothing where that takes other rights."""
    command = ["unshare", "--net"]
    tried = subprocess.run([*command, "true"], capture_output=True, check=False)
    return command if tried.returncode == 0 else []


class Wheels(RunTest):
    workplace: ClassVar[Path]
    wheels: ClassVar[Path]
    tree: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(prefix="pecia-wheels-")
        cls.addClassCleanup(folder.cleanup)
        cls.workplace = Path(folder.name)
        cls.wheels, cls.tree = cls.workplace / "wheels", cls.workplace / "tree"
        command = [WHEELS, cls.wheels, "books", "report"]
        got = subprocess.run(command, capture_output=True, text=True, check=False)
        if got.returncode != 0:
            raise unittest.SkipTest(f"no wheels can be had: {got.stderr.strip()[-300:]}")
        subprocess.run(
            [CMAKE, "--install", BUILD, "--prefix", cls.tree], check=True, stdout=subprocess.DEVNULL
        )

    def run_alone(self, *words: object, **environment: str) -> None:
        kept = {"PATH": f"{self.tree}/bin:/usr/bin:/bin", "HOME": str(self.folder)}
        ended = subprocess.run(
            [*alone(), *map(str, words)],
            cwd=self.folder,
            env={**kept, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(ended.returncode, 0, f"{words}\n{ended.stdout}{ended.stderr}")

    def from_books_to_figures(self, **environment: str) -> None:
        model = make_word_model(self.folder / "model")
        books = self.folder / "books"
        books.mkdir()
        (books / "plain.txt").write_text(some_words(20))
        for name in (*BOOKS, TABLE):  # a request has the name of its file
            shutil.copy(FOREIGN / name, books / f"of-{name.partition('.')[2].replace('.', '-')}-{name}")
        self.run_alone("pecia-pack", "--model", model, "--output", "job.h5", books, **environment)
        job = self.write_job(
            model={"path": str(model)}, generation={"max_new_tokens": 4, "ignore_eos": True}
        )
        launch = self.launch([MPIEXEC, "-np", 1, self.tree / "bin/pecia", "run", job])
        self.assertEqual(launch.wait(120), 0, launch.words())
        self.assertEqual(len(self.results(job).rows(DONE)), 1 + len(BOOKS) + 2)
        run = self.output(job)
        self.run_alone("pecia-report", run, "--png", self.folder / "figures", **environment)
        self.assertIn("<svg", (run / "report.html").read_text())
        self.assertTrue(list((self.folder / "figures").glob("*.png")))

    def test_with_pip(self) -> None:
        self.addCleanup(shutil.rmtree, self.tree / "share/pecia/.venv")
        for kind in ((), ("books",), ("report",)):
            self.run_alone("pecia-setup", *kind, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(self.wheels))
        self.from_books_to_figures()

    def test_without_pip(self) -> None:
        packages = self.folder / "packages"
        for wheel in self.wheels.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(packages)
        self.from_books_to_figures(PECIA_PYTHON=PYTHON, PYTHONPATH=str(packages))

    def test_for_another_processor(self) -> None:
        here = platform.machine()
        other = "x86_64" if here == "aarch64" else "aarch64"
        environment = {**os.environ, "PECIA_PROCESSOR": other}
        subprocess.run([WHEELS, self.folder / "wheels"], env=environment, check=True, capture_output=True)
        names = [wheel.stem for wheel in (self.folder / "wheels").glob("*.whl")]
        self.assertTrue(any(name.startswith("numpy-") and name.endswith(other) for name in names), names)
        self.assertFalse([name for name in names if here in name])


if __name__ == "__main__":
    unittest.main()
