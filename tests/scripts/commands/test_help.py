# SPDX-License-Identifier: Apache-2.0
"""--help of the commands: it gives an example and neither makes nor installs anything."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from support import ScriptTest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
COMMANDS = sorted(
    path.name
    for path in SCRIPTS.iterdir()
    if path.is_file() and re.search(r"\nexec .*/launch\.sh", path.read_text("utf-8"))
)


class HelpTest(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.scripts = self.folder / "scripts"
        ignored = shutil.ignore_patterns("__pycache__", "container")
        shutil.copytree(SCRIPTS, self.scripts, ignore=ignored)
        (self.scripts / "setup.sh").write_text('#!/bin/sh\ntouch "$0.called"\nexit 1\n')

    def environment(self, *forbidden: str) -> None:
        """A .venv whose Python is this one, without some packages."""
        python = self.folder / ".venv/bin/python"
        python.parent.mkdir(parents=True)
        hooks = self.folder / "hooks"
        hooks.mkdir()
        names = "\n".join(f"sys.modules[{name!r}] = None" for name in forbidden)
        (hooks / "sitecustomize.py").write_text(f"import sys\n{names}\n")
        python.write_text(
            f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH:{hooks}"\nexec "{sys.executable}" -B "$@"\n'
        )
        python.chmod(0o755)

    def run_help(self, command: str) -> "subprocess.CompletedProcess[str]":
        before = self.files()
        ended = subprocess.run(
            [self.scripts / command, "--help"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        self.assertEqual(self.files(), before)
        return ended

    def files(self) -> list[Path]:
        return sorted(self.folder.rglob("*"))


class EveryCommand(HelpTest):
    def test_has_an_example_and_installs_nothing(self) -> None:
        self.environment("matplotlib")
        self.assertIn("pecia-report", COMMANDS)
        for command in COMMANDS:
            with self.subTest(command):
                ended = self.run_help(command)
                self.assertEqual((ended.returncode, ended.stderr), (0, ""))
                self.assertRegex(ended.stdout, r"(?s)examples?:.*" + command)


class WithoutEnvironment(HelpTest):
    def test_pack_explains_itself(self) -> None:
        ended = self.run_help("pecia-pack")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertIn("--split-tokens", ended.stdout)

    def test_others_say_what_is_missing(self) -> None:
        ended = self.run_help("pecia-report")
        self.assertEqual((ended.returncode, ended.stdout), (2, ""))
        self.assertIn("pecia-setup", ended.stderr)
