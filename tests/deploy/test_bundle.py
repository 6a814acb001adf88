# SPDX-License-Identifier: Apache-2.0
"""The bundle for a GPU machine carries what that machine may lack: Open MPI and PMIx with their plugins."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import ClassVar

SOURCE = Path(os.environ["PECIA_SOURCE"])
BUILD = Path(os.environ["PECIA_BUILD"])
MOST_BYTES = 55 << 20


def own_mpi_folders() -> list[str]:
    """Where this machine's Open MPI and PMIx have their plugins and texts."""
    found = []
    for what in ("libdir", "pkglibdir", "pkgdatadir", "sysconfdir"):
        text = subprocess.run(["ompi_info", "--parsable", "--path", what], capture_output=True, text=True).stdout
        found.append(text.strip().rsplit(":", 1)[-1])
    found += [str(path) for path in Path("/usr/lib").glob("*/pmix*") if path.is_dir()]
    found = sorted({folder for folder in found if Path(folder).is_dir()})
    return [one for one in found if not any(one.startswith(f"{other}/") for other in found)]


class BundleTest(unittest.TestCase):
    folder: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        archive = Path(temporary.name) / "bundle.tar.xz"
        made = subprocess.run(
            [SOURCE / "scripts" / "bundle.sh", "--build", BUILD, archive], capture_output=True, text=True
        )
        if made.returncode != 0:
            raise AssertionError(made.stderr)
        if archive.stat().st_size > MOST_BYTES:
            raise AssertionError(f"{archive.stat().st_size} bytes")
        shutil.unpack_archive(archive, temporary.name)
        cls.folder = Path(temporary.name) / "pecia-cuda"

    def test_ranks_start_on_a_machine_without_open_mpi(self) -> None:
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
            self.skipTest("it needs a mount namespace, which wants root")
        hide = "".join(f"mount -t tmpfs none {folder}\n" for folder in own_mpi_folders())
        no_mpi = "! command -v ompi_info >/dev/null || ! ompi_info --version >/dev/null 2>&1"
        script = f'set -e\n{hide}{no_mpi}\nexec "$@"'
        inside = ["./run", "mpirun", "-n", "2", "--bind-to", "none", "./run", "pecia", "topology"]
        ranks = subprocess.run(
            ["unshare", "--mount", "bash", "-c", script, "bash", *inside],
            cwd=self.folder,
            env={**os.environ, "LD_LIBRARY_PATH": ""},
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(ranks.returncode, 0, ranks.stdout + ranks.stderr)
        self.assertIn("ranks: 2", ranks.stdout)
        self.assertNotIn("help file", ranks.stderr)

    def test_its_check_lists_all_phases(self) -> None:
        listed = subprocess.run(["./gpu-check.sh", "--list"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual({line[0] for line in listed.stdout.splitlines()}, set("ABCDEF"), listed.stderr)

    def test_its_helpers_need_no_package(self) -> None:
        for module in ("bench.model", "gpu.table"):
            ran = subprocess.run(
                ["/usr/bin/python3", "-I", "-c", f"import sys; sys.path.insert(0, '.'); import pecia_tools.{module}"],
                cwd=self.folder,
                capture_output=True,
                text=True,
            )
            self.assertEqual(ran.returncode, 0, ran.stderr)


if __name__ == "__main__":
    unittest.main()
