# SPDX-License-Identifier: Apache-2.0
"""From documents to texts by the commands in the comments of configs/, word by word, and by the workflows there. The
model is a tiny one under the demo's name, and sbatch is a loop."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import unittest
import venv
from collections.abc import Iterator
from pathlib import Path

from harness import DONE, MPIEXEC, PROGRAM, SOURCE, Results, RunTest
from word_model import make_word_model, some_words

SNAKEMAKE = "snakemake==9.27.1"
SBATCH = """#!/usr/bin/env bash
set -euo pipefail
[[ $1 =~ ^--array=1-([0-9]+)$ ]]
shift
# Open MPI, too, would ask these variables for its nodes.
export SLURM_SUBMIT_DIR=$PWD SLURM_JOB_NODELIST=here SLURM_JOB_NUM_NODES=1 PECIA_SITE=here
export OMPI_MCA_ras=^slurm OMPI_MCA_plm=isolated
for ((task = 1; task <= BASH_REMATCH[1]; ++task)); do
  SLURM_JOB_ID=$task SLURM_ARRAY_TASK_ID=$task bash "$@"
done
"""


def commands_of(path: Path, before: str = "#     ") -> list[str]:
    """The indented lines of a file's comments; a line that ends with a backslash goes on in the next."""
    text = "".join(
        f"{line[len(before) :]}\n"
        for line in path.read_text().splitlines()
        if line.startswith(before)
    )
    return [line for line in text.replace("\\\n", " ").splitlines() if line]


class Workplace(RunTest):
    """A folder like the repository's root, in which commands are run."""

    def setUp(self) -> None:
        super().setUp()
        for name in ("scripts", "lib"):
            (self.folder / name).symlink_to(SOURCE / name)
        for name in ("configs", "jobs"):
            shutil.copytree(SOURCE / name, self.folder / name)
        program = self.folder / "build/release/bin/pecia"
        program.parent.mkdir(parents=True)
        program.symlink_to(PROGRAM.resolve())
        (self.folder / "models").mkdir()
        make_word_model(self.folder / "models/SmolLM2-135M-Instruct")
        self.make_sbatch()

    def make_sbatch(self) -> None:
        sbatch = self.folder / "bin/sbatch"
        sbatch.parent.mkdir()
        sbatch.write_text(SBATCH)
        sbatch.chmod(0o755)
        sites = self.folder / "jobs/slurm/sites"
        site = (sites / "example.sh").read_text()
        for key, value in (("launcher", "mpirun"), ("ranks_per_node", "1"), ("cpus_per_rank", "1")):
            site = re.sub(rf"^site_{key}=\S+", f"site_{key}={value}", site, flags=re.M)
        (sites / "here.sh").write_text(site)

    def run_command(self, command: str, *search: Path) -> None:
        path = [self.folder / "bin", *search, Path(MPIEXEC).parent, os.environ["PATH"]]
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env={**os.environ, "PATH": ":".join(map(str, path))},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        self.assertEqual(ended.returncode, 0, f"{command}\n{ended.stdout}{ended.stderr}")

    def run_commands(self, name: str) -> None:
        commands = commands_of(self.folder / "configs" / name)
        self.assertGreater(len(commands), 0)
        for command in commands:
            self.run_command(command)

    def write_books(self, folder: Path, count: int) -> None:
        folder.mkdir(parents=True)
        for book in range(count):
            chapters = [f"# Chapter {n}\n\n{some_words(40 + 9 * n, book)}\n" for n in (1, 2)]
            (folder / f"book{book}.md").write_text("\n".join(chapters))

    def results_in(self, folder: str) -> Iterator[Results]:
        for path in sorted((self.folder / folder).rglob("results.h5")):
            yield Results.read(path)


class WholeExamples(Workplace):
    def test_shelf(self) -> None:
        self.write_books(self.folder / "books", 3)
        self.run_commands("shelf.yaml")
        (found,) = self.results_in("runs/shelf")
        self.assertEqual(len(found.rows(DONE)), 6, "two chapters of three books")
        texts = {path.stem for path in (self.folder / "texts/shelf").glob("book*.txt")}
        self.assertEqual(texts, {"book0", "book1", "book2"})

    def test_summaries(self) -> None:
        self.write_books(self.folder / "books", 2)
        (self.folder / "books/long.md").write_text(f"# Long\n\n{some_words(9000)}\n")
        self.run_commands("summaries.yaml")
        for name in ("book0", "book1", "long"):
            text = (self.folder / f"summaries/{name}.txt").read_text()
            self.assertRegex(text, r"\A\[(\d+) of \1 parts?, 100 % of ")
        rounds = {path.name for path in (self.folder / "summaries/rounds").iterdir()}
        self.assertEqual(rounds, {"1", "2"}, "parts of the long one, then both together")
        report = json.loads((self.folder / "summaries/rounds/2/run/report.json").read_text())
        self.assertEqual(report["job"]["generation"]["repetition_penalty"], 1.05)

    def test_filings(self) -> None:
        (make,) = [
            command
            for command in commands_of(SOURCE / "configs/README.md", "    ")
            if "filings/$n.txt" in command
        ]
        (self.folder / "filings").mkdir()
        self.assertEqual(make.count("seq 1000"), 1)
        self.run_command(make.replace("seq 1000", "seq 120"))
        self.assertIn("Company 120, Inc.", (self.folder / "filings/120.txt").read_text())
        self.run_commands("filings.yaml")
        runs = {path.name for path in (self.folder / "runs/filings").glob("filings-*")}
        self.assertEqual(runs, {"filings-0001", "filings-0002"}, "a run for each shard")
        rows = [
            row
            for path in (self.folder / "runs/filings").glob("filings-*/answers.csv")
            for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())
        ]
        self.assertEqual(len(rows), 120)
        whole = Results.read(self.folder / "runs/filings/results.h5")
        self.assertEqual(len(whole.rows(DONE)), 120, "and one run of all")

    def test_codebase(self) -> None:
        self.run_commands("codebase.yaml")
        (found,) = self.results_in("runs/codebase")
        files = len(list((SOURCE / "lib/work/batch").glob("*.hpp")))
        self.assertEqual(len(found.rows(DONE)), 3 * files, "a document and two questions each")

    def test_workflows_give_pecia_the_same_words(self) -> None:
        """What the two tell pecia-pack, pecia run and pecia-text, but for places."""

        def words(name: str) -> list[list[str]]:
            text = (SOURCE / "configs/workflows" / name).read_text()
            text = re.sub(r"^(#|//).*$", "", text, flags=re.M)
            found = [
                re.findall(r"--[a-z-]+(?: model\.path| input| output)?", part)
                for part in re.split(
                    r"pecia-pack|pecia\S* run configs|PECIA} run|params.pecia} run|pecia-text", text
                )[1:]
            ]
            return [sorted(set(part) - {"--force", "--bind-to"}) for part in found]

        self.assertEqual(words("main.nf"), words("Snakefile"))
        self.assertEqual(len(words("Snakefile")), 3)


class Snakemake(Workplace):
    place: Path

    @classmethod
    def setUpClass(cls) -> None:
        cls.place = Path(os.environ["PECIA_BUILD"]) / "tests/snakemake"
        stamp = cls.place / SNAKEMAKE
        if stamp.exists():
            return
        venv.create(cls.place, clear=True, with_pip=True)
        got = subprocess.run(
            [cls.place / "bin/pip", "install", "-q", "--disable-pip-version-check", SNAKEMAKE],
            capture_output=True,
            text=True,
            check=False,
        )
        if got.returncode != 0:
            raise unittest.SkipTest(f"{SNAKEMAKE} cannot be had: {got.stderr.strip()[-200:]}")
        stamp.touch()

    def test_every_folder_becomes_texts(self) -> None:
        for shelf, books in (("novels", 2), ("letters", 1)):
            self.write_books(self.folder / "books" / shelf, books)
        (self.folder / "books/novels/bad.txt").write_bytes(b"\xff")  # stops no other
        command = commands_of(self.folder / "configs/workflows/Snakefile")[0]
        self.run_command(command, self.place / "bin")
        for shelf, books in (("novels", 2), ("letters", 1)):
            texts = list((self.folder / "texts" / shelf).glob("book*.txt"))
            self.assertEqual(len(texts), books, shelf)
        # Nothing is left to do, and a lost text is made again from the results alone.
        before = (self.folder / "runs/letters/results.h5").stat().st_mtime_ns
        shutil.rmtree(self.folder / "texts/letters")
        self.run_command(command, self.place / "bin")
        self.assertTrue((self.folder / "texts/letters").is_dir())
        self.assertEqual((self.folder / "runs/letters/results.h5").stat().st_mtime_ns, before)


if __name__ == "__main__":
    unittest.main()
