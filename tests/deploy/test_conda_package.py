# SPDX-License-Identifier: Apache-2.0
"""The conda package is built from a checkout without a network. It takes minutes without a warm compiler cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import SOURCE
from rattler import RattlerBuild

FILES = "import sys; from rattler_build import Package; print(*Package.from_file(sys.argv[1]).files, sep='\\n')"
EXPECTED = {
    *("bin/pecia", "bin/pecia-pack", "etc/conda/activate.d/pecia.sh"),
    *("share/pecia/configs/one-node.yaml", "share/pecia/jobs/slurm/pecia.sbatch"),
}


class CondaPackage(RattlerBuild):
    def test_it_holds_the_installed_tree(self) -> None:
        with tempfile.TemporaryDirectory(prefix="pecia-conda-") as folder:
            checkout = Path(folder) / "checkout"
            names = subprocess.check_output(["git", "ls-files", "-z"], cwd=SOURCE).split(b"\0")
            for name in filter(None, map(os.fsdecode, names)):
                (checkout / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(SOURCE / name, checkout / name, follow_symlinks=False)
            recipe = checkout / "scripts/packaging/conda/recipe.yaml"
            (package,) = self.conda("build", recipe, Path(folder) / "channel")["packages"]
            files = subprocess.check_output([self.python, "-c", FILES, package], text=True)
            self.assertLessEqual(EXPECTED, set(files.splitlines()))


if __name__ == "__main__":
    unittest.main()
