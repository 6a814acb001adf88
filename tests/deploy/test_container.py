# SPDX-License-Identifier: Apache-2.0
"""The steps of the image definitions, done without an engine: in a bare Debian 12 below a temporary folder. Needs root,
debootstrap and a network."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import DONE, MODEL, SOURCE, Results, RunTest, random_requests

CONTAINER = SOURCE / "scripts/container"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# A private view of the mounts, which ends with the command.
INSIDE = (
    'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount --rbind /sys "$1/sys" && '
    'exec chroot "$1" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin '
    "PIP_CERT=/certificates OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
    'OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 bash -euc "$2"'
)


def sections(definition: str) -> dict[str, str]:
    """Of an Apptainer definition, by name."""
    parts = re.split(r"^%(\w+)\n", definition, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


class ContainerTest(RunTest):
    definition = sections((CONTAINER / "pecia.def").read_text())
    dockerfile = (CONTAINER / "Dockerfile").read_text()

    def inside(self, root: Path, command: str) -> str:
        ended = subprocess.run(
            ["unshare", "--mount", "bash", "-euc", INSIDE, "bash", root, command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        self.assertEqual(
            ended.returncode, 0, f"{command}\n{ended.stdout[-4000:]}{ended.stderr[-4000:]}"
        )
        return ended.stdout

    def test_both_definitions_do_the_same(self) -> None:
        copies = [line.split() for line in self.definition["files"].splitlines() if line.strip()]
        self.assertEqual(
            copies, [line.split() for line in re.findall(r"^COPY (.*)", self.dockerfile, re.M)]
        )
        commands = [line.strip() for line in self.definition["post"].splitlines() if line.strip()]
        self.assertEqual(commands, re.findall(r"^RUN (.*)", self.dockerfile, re.M))
        self.assertIn("From: debian:12\n", (CONTAINER / "pecia.def").read_text())
        self.assertIn("FROM debian:12\n", self.dockerfile)
        path = self.definition["environment"].strip().removeprefix("export ")
        self.assertIn(f"ENV {path}\n", self.dockerfile)

    def test_the_steps_give_an_image_that_runs_a_job(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="pecia-image-")
        self.addCleanup(folder.cleanup)
        root = Path(folder.name)
        subprocess.run(
            ["debootstrap", "--variant=minbase", "bookworm", root],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        shutil.copy(CERTIFICATES, root / "certificates")
        (root / "src").mkdir()
        for source, target in (
            line.split() for line in self.definition["files"].strip().splitlines()
        ):
            subprocess.run(["cp", "-a", SOURCE / source, root / target.lstrip("/")], check=True)

        self.inside(root, self.definition["post"])
        environment = self.definition["environment"]
        self.inside(root, environment + self.definition["test"])
        left = self.inside(root, "ls / /opt/pecia; command -v g++ cmake || true")
        self.assertNotRegex(left, r"\bsrc\b|g\+\+|cmake")

        requests = random_requests(5, 5, 40, seed=2)
        generation = {"max_new_tokens": 5, "ignore_eos": True}
        here = self.write_job(requests, "here", generation=generation)
        self.run_job(here, 1)
        job = self.write_job(requests, model={"path": "model"}, generation=generation)
        shutil.copytree(MODEL, root / "job/model")
        for path in (job, self.folder / "job.h5"):
            shutil.copy(path, root / "job")
        command = "mpirun -np 2 --bind-to none pecia run /job/job.yaml"
        self.inside(root, environment + command)
        found = Results.read(root / "job/job.run/results.h5")
        self.assertEqual(found.rows(DONE), list(range(5)))
        self.assert_same_answers(found, self.results(here), found.rows(DONE))
        self.inside(root, environment + "pecia-report /job/job.run")
        self.assertIn("by XGrammar", self.inside(root, environment + "pecia doctor"))
        megabytes = int(self.inside(root, "du -smx /").split()[0])
        print(f"\nthe image holds {megabytes} MB", flush=True)
        script = self.definition["runscript"].strip()
        self.assertEqual(shlex.split(script), ["exec", "pecia", "$@"])
        self.assertIn('ENTRYPOINT ["pecia"]', self.dockerfile)


if __name__ == "__main__":
    unittest.main()
