# SPDX-License-Identifier: Apache-2.0
"""Reads the list of faults; its own first lines say how it is written."""

import re
import sys
from pathlib import Path


class Fault:
    """A slip: `old`, which is once in `file`, becomes `new`."""

    def __init__(self, name: str, file: str, old: str, new: str):
        self.name, self.file, self.old, self.new = name, file, old, new


def read_faults(path: Path) -> tuple:
    """The faults, and by folder the patterns of the tests that are to find its faults."""
    faults, folders = [], {}
    for paragraph in re.split(r"\n\s*\n", path.read_text()):
        lines = [line for line in paragraph.splitlines() if line and not line.startswith("#")]
        if not lines:
            continue
        if lines[0].startswith("folder "):
            folders[lines[0].split()[1]] = [
                pattern for line in lines[1:] for pattern in line.split()
            ]
            continue
        old = "\n".join(line[2:] for line in lines[2:] if line.startswith("-"))
        new = "\n".join(line[2:] for line in lines[2:] if line.startswith("+"))
        if (
            len(lines) < 3
            or not old
            or any(line[:2] not in ("- ", "+ ", "-", "+") for line in lines[2:])
        ):
            sys.exit(
                f"mutants: {path}: '{lines[0]}' is not a name, a file, '- ' lines and '+ ' lines"
            )
        faults.append(Fault(lines[0], lines[1], old, new))
    return faults, folders


def tests_of(file: str, folders: dict, tests: list) -> list:
    """The tests for the faults of the nearest folder above, or for the file itself, in the order of the patterns."""
    nearest = [name for name in folders if file == name or file.startswith(name + "/")]
    if not nearest:
        sys.exit(f"mutants: no tests are named for the folder of {file}")
    found = []
    for text in folders[max(nearest, key=len)]:
        pattern, _, cases = text.partition(":")
        matching = [test for test in tests if re.fullmatch(pattern, test.name)]
        if not matching:
            sys.exit(f"mutants: no test is called '{pattern}'")
        found += [test.only(cases) if cases else test for test in matching]
    return found
