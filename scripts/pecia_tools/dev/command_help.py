# SPDX-License-Identifier: Apache-2.0
"""What `pecia --help` says, as values: the one source of the man page and of the shells' completions."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from ..command import UserError

HEADINGS = ("options", "positionals", "subcommands", "examples")
# "INT:INT in [1 - 9]", "PATH REQUIRED", "KEY=VALUE ...": only the first word is the value's name, without its type.
# "Excludes: --model" is no value.
ENTRY = re.compile(r"(?P<names>-?[^ ,]+(?:, *-[^ ,]+)*)(?P<value>(?: \S+)*?)(?:  +(?P<text>\S.*))?")
VALUE = re.compile(r"(?!(?:Excludes|Needs):)(?:[^][:]|\[[^]]*\])+")


@dataclass
class Entry:
    """An option, a positional or a command: its names, the name of its value if it takes one, what it does."""

    names: list[str]
    value: str
    text: str


@dataclass
class Help:
    about: str = ""
    options: list[Entry] = field(default_factory=list)
    positionals: list[Entry] = field(default_factory=list)
    subcommands: list[Entry] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)


def parse_help(text: str) -> Help:
    """CLI11's layout: a line of what it is, headings, entries indented by two, their text at a column of its own."""
    found = Help()
    section = None
    for line in text.splitlines():
        heading = line.strip().rstrip(":").lower()
        if line and not line.startswith(" ") and line.endswith(":") and heading in HEADINGS:
            section = getattr(found, heading)
        elif section is found.examples:
            section += [line[2:]] if line.strip() else []
        elif section is None:
            if line.strip() and not line.lower().startswith("usage:"):
                found.about = f"{found.about} {line.strip()}".strip()
        elif line.startswith("   ") and not line.lstrip().startswith("-"):
            section[-1].text = f"{section[-1].text} {line.strip()}".strip()
        elif entry := ENTRY.fullmatch(line.strip()):
            words = entry["value"].split() or [""]
            value = found_value[0] if (found_value := VALUE.match(words[0])) else ""
            section.append(Entry(re.split(r", *", entry["names"]), value, entry["text"] or ""))
        elif line.strip():
            raise UserError(f"the help has a line of unknown form: {line!r}")
    return found


def output_of(program: Path, *arguments: str) -> str:
    try:
        ended = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError as error:
        raise UserError(
            f"{program}: {error.strerror}; build it, or name it with --program"
        ) from None
    if ended.returncode != 0:
        raise UserError(f"{program} {' '.join(arguments)}: {ended.stderr.strip()}")
    return ended.stdout


@dataclass
class CommandLine:
    """The program's whole surface."""

    version: str
    main: Help
    commands: dict[str, Help]
    job_keys: list[str]


def job_keys(default_job: str) -> list[str]:
    """Keys that `--set` takes, in the file's order: "generation.seed"."""
    keys: list[str] = []
    section = ""
    for line in default_job.splitlines():
        if match := re.match(r"(?P<indent> *)(?P<key>\w+):(?P<value>.*)", line):
            if match["indent"]:
                keys.append(f"{section}.{match['key']}")
            elif match["value"].strip():
                keys.append(match["key"])
            else:
                section = match["key"]
    return keys


def read_command_line(program: Path) -> CommandLine:
    main = parse_help(output_of(program, "--help"))
    commands = {
        entry.names[0]: parse_help(output_of(program, entry.names[0], "--help"))
        for entry in main.subcommands
    }
    version = output_of(program, "--version").split()[1]
    return CommandLine(
        version, main, commands, job_keys(output_of(program, "run", "--print-default"))
    )
