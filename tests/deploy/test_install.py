# SPDX-License-Identifier: Apache-2.0
"""The installed tree, moved to another place: a batch from documents to texts with nothing of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Optional

from harness import DONE, MPIEXEC, SOURCE, RunTest
from word_model import make_word_model

BUILD = Path(os.environ["PECIA_BUILD"])
CMAKE = os.environ["PECIA_CMAKE"]
HELPERS = (
    *("pecia-import-gguf", "pecia-pack", "pecia-report", "pecia-setup", "pecia-summarize"),
    "pecia-text",
)


class InstalledTree(RunTest):
    workplace: ClassVar[Path]
    installed_at: ClassVar[Path]
    tree: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        workplace = tempfile.TemporaryDirectory(prefix="pecia-install-")
        cls.addClassCleanup(workplace.cleanup)
        cls.workplace = Path(workplace.name)
        cls.installed_at = cls.workplace / "first place"
        subprocess.run(
            [CMAKE, "--install", BUILD, "--prefix", cls.installed_at],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        cls.tree = cls.workplace / "moved" / "pecia"
        cls.tree.parent.mkdir()
        cls.installed_at.rename(cls.tree)

    def give_python(self) -> None:
        """What pecia-setup would make; it needs a network."""
        environment = self.tree / "share/pecia/.venv"
        environment.symlink_to(SOURCE / ".venv")
        self.addCleanup(environment.unlink)

    def environment(self, **more: str) -> dict[str, str]:
        search = ["/usr/bin", "/bin", os.fspath(Path(MPIEXEC).parent)]
        return {**os.environ, "PATH": ":".join([os.fspath(self.tree / "bin"), *search]), **more}

    def command(
        self, *words: object, expect: int = 0, environment: Optional[dict[str, str]] = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs what PATH finds in the tree."""
        ended = subprocess.run(
            [str(word) for word in words],
            cwd=self.folder,
            env=environment or self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(ended.returncode, expect, f"{words}\n{ended.stdout}{ended.stderr}")
        return ended

    def files(self) -> Iterator[Path]:
        return (path for path in self.tree.rglob("*") if path.is_file() and not path.is_symlink())

    def make_model(self) -> Path:
        """The tiny model with a tokenizer of whole words."""
        return make_word_model(self.folder / "model")

    def make_documents(self) -> Path:
        documents = self.folder / "documents"
        documents.mkdir()
        for name, count in (("short", 5), ("long", 90)):
            text = " ".join(f"word{3 + number % 50}" for number in range(count))
            (documents / f"{name}.txt").write_text(text, encoding="utf-8")
        return documents

    def make_job(self, model: Path, **sections: Any) -> Path:
        generation = {"max_new_tokens": 6, "ignore_eos": True}
        return self.write_job(model={"path": str(model)}, generation=generation, **sections)

    def test_a_batch_from_documents_to_texts(self) -> None:
        self.give_python()
        model, documents = self.make_model(), self.make_documents()
        self.command("pecia-pack", "--model", model, "--no-chat", "--output", "job.h5", documents)
        job = self.make_job(model)
        self.command(MPIEXEC, "-np", 2, "--bind-to", "none", "pecia", "run", job)
        found = self.results(job)
        self.assertEqual(found["prompt_tokens"].tolist(), [90, 5])
        self.assertEqual(found.rows(DONE), [0, 1])
        run = self.output(job)
        self.command("pecia-text", run, "--model", model, "--output", "texts")
        for name in ("short", "long"):
            self.assertRegex((self.folder / f"texts/{name}.txt").read_text(), r"^(word\d+ ?)+\n?$")
        self.command("pecia-report", run)
        self.assertIn("<html", (run / "report.html").read_text())

    def test_batch_scripts_run_where_they_are_copied(self) -> None:
        """As Slurm starts them, but by mpirun on this machine; tests/slurm has the clusters."""
        self.give_python()
        model, documents = self.make_model(), self.make_documents()
        shutil.copytree(self.tree / "share/pecia/jobs", self.folder / "jobs")
        site = (self.folder / "jobs/slurm/sites/example.sh").read_text()
        for old, new in (
            ("site_launcher=srun", "site_launcher=mpirun"),
            ("site_ranks_per_node=2", "site_ranks_per_node=1"),
            ("site_cpus_per_rank=32", "site_cpus_per_rank=1"),
        ):
            self.assertIn(old, site)
            site = site.replace(old, new)
        (self.folder / "jobs/slurm/sites/here.sh").write_text(site)
        job = self.make_job(model)
        # Open MPI, too, would ask these variables for its nodes.
        slurm = self.environment(
            SLURM_SUBMIT_DIR=str(self.folder),
            SLURM_JOB_ID="1",
            SLURM_JOB_NODELIST="here",
            SLURM_JOB_NUM_NODES="1",
            PECIA_SITE="here",
            OMPI_MCA_ras="^slurm",
            OMPI_MCA_plm="isolated",
        )
        scripts = self.folder / "jobs/slurm"
        pack = [
            scripts / "pack.sbatch",
            documents,
            "--model",
            model,
            "--no-chat",
            "--output",
            "job.h5",
        ]
        self.command("bash", *pack, environment=slurm)
        self.command("bash", scripts / "pecia.sbatch", job, environment=slurm)
        self.assertEqual(self.results(job).rows(DONE), [0, 1])
        self.command("bash", scripts / "report.sbatch", self.output(job), environment=slurm)
        self.assertTrue((self.output(job) / "report.html").exists())

    def test_job_files_are_those_of_the_repository(self) -> None:
        """All but quickstart's; only commands in their comments are adapted."""
        kept = {path.name for path in (SOURCE / "configs").glob("*.yaml")} - {"quickstart.yaml"}
        names = {path.name for path in (self.tree / "share/pecia/configs").glob("*.yaml")}
        self.assertEqual(names, kept)
        for name in names:
            installed = (self.tree / "share/pecia/configs" / name).read_text()
            self.assertNotRegex(installed, r"build/|scripts/pecia-")
            self.assertRegex(installed, rf"(pecia run|pecia-summarize --job) configs/{name}")
            settings = [
                [line for line in text.splitlines() if not line.startswith("#")]
                for text in (installed, (SOURCE / "configs" / name).read_text())
            ]
            self.assertEqual(*settings)

    def test_workflows_name_only_what_is_installed(self) -> None:
        for path in (SOURCE / "configs/workflows").iterdir():
            installed = (self.tree / "share/pecia/configs/workflows" / path.name).read_text()
            self.assertNotRegex(installed, r"repository|build/|scripts/")
            self.assertRegex(installed, r"(?m)^ +\"?pecia-pack --model")

    def test_batch_scripts_name_only_what_is_installed(self) -> None:
        scripts = self.tree / "share/pecia/jobs/slurm"
        for original in (SOURCE / "jobs/slurm").rglob("*"):
            if original.is_file() and original.parent.name != "sites":
                installed = scripts / original.relative_to(SOURCE / "jobs/slurm")
                text = installed.read_text()
                self.assertNotRegex(text, r"repository|build/|(?<!jobs/)scripts/")
                changed = set(text.splitlines()) - set(original.read_text().splitlines())
                for line in changed:
                    self.assertRegex(line, r"the folder that holds jobs/|pecia-(pack|report|setup)")

    def test_helpers_without_their_python_say_how_to_get_it(self) -> None:
        for name in HELPERS:
            if name != "pecia-setup":
                ended = self.command(name, "books", expect=2)
                self.assertIn(
                    f"{self.tree.resolve()}/share/pecia/scripts/pecia-setup", ended.stderr
                )

    def test_pecia_pack_explains_itself_without_its_python(self) -> None:
        self.assertIn("--split-tokens", self.command("pecia-pack", "--help").stdout)

    def test_nothing_names_the_places_where_it_was_made(self) -> None:
        places = [os.fsencode(place) for place in (SOURCE, BUILD, self.installed_at)]
        for path in self.files():
            content = path.read_bytes()
            for place in places:
                self.assertFalse(place in content, f"{path} has {os.fsdecode(place)}")
        for path in self.tree.rglob("*"):
            if path.is_symlink():
                self.assertFalse(os.path.isabs(os.readlink(path)), path)
                self.assertTrue(path.resolve(strict=True).is_relative_to(self.tree.resolve()), path)

    def test_the_program_looks_for_libraries_beside_itself(self) -> None:
        dynamic = self.command("readelf", "-d", self.tree / "bin/pecia").stdout
        paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic)
        self.assertEqual(len(paths), 1, dynamic)
        self.assertRegex(paths[0], r"^\$ORIGIN/\.\./lib[^:]*$")

    def test_what_is_where(self) -> None:
        programs = {path.name for path in (self.tree / "bin").iterdir()}
        self.assertEqual(programs, {"pecia", *HELPERS})
        for name in programs:
            self.assertTrue(os.access(self.tree / "bin" / name, os.X_OK), name)
        share = self.tree / "share"
        for name in ("pecia.1", "pecia.bash", "_pecia"):
            places = {
                "pecia.1": share / "man/man1/pecia.1",
                "pecia.bash": share / "bash-completion/completions/pecia",
                "_pecia": share / "zsh/site-functions/_pecia",
            }
            made = SOURCE / "apps/pecia/share" / name
            self.assertEqual(places[name].read_text(), made.read_text())
        licence = share / "doc/pecia/LICENSE"
        self.assertEqual(licence.read_text(), (SOURCE / "LICENSE").read_text())


if __name__ == "__main__":
    unittest.main()
