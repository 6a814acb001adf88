# SPDX-License-Identifier: Apache-2.0
"""rattler-build, which builds conda packages and is on PyPI."""

from __future__ import annotations

import json
import os
import subprocess
import unittest
import venv
from pathlib import Path
from typing import Any, ClassVar

from harness import SOURCE

BUILD = Path(os.environ["PECIA_BUILD"])
RECIPE = SOURCE / "scripts/packaging/conda/recipe.yaml"
RATTLER = "py-rattler-build==0.73.0"


class RattlerBuild(unittest.TestCase):
    """Runs conda_build.py in an environment that has rattler-build, which is made once."""

    python: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        place = BUILD / "tests/rattler"
        cls.python = place / "bin/python"
        if (place / RATTLER).exists():
            return
        venv.create(place, clear=True, with_pip=True)
        got = subprocess.run(
            [place / "bin/pip", "install", "-q", "--disable-pip-version-check", RATTLER],
            capture_output=True,
            text=True,
            check=False,
        )
        if got.returncode != 0:
            raise unittest.SkipTest(f"{RATTLER} cannot be had: {got.stderr.strip()[-200:]}")
        (place / RATTLER).touch()

    def conda(self, *words: object, **environment: str) -> dict[str, Any]:
        command = [self.python, Path(__file__).with_name("conda_build.py"), *words]
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
        )
        self.assertEqual(ended.returncode, 0, ended.stdout[-2000:] + ended.stderr[-4000:])
        return json.loads(ended.stdout)
