# SPDX-License-Identifier: Apache-2.0
"""make-man: the man page and the shells' completions, from what the built command says of itself."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..command import note, run, temporary_file
from .command_help import CommandLine, Entry, Help, read_command_line
from .completion import bash_completion, zsh_completion
from .tool_completion import bash_tools, zsh_tools

PROGRAM = "make-man"
ROOT = Path(__file__).resolve().parents[3]
SHARE = ROOT / "apps" / "pecia" / "share"
TEMPLATE = SHARE / "pecia.1.in"


def roff(text: str) -> str:
    """Text as roff sets it unchanged: no line begins with a request, hyphens stay what they are."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in escaped)
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped


def _entry(entry: Entry) -> list[str]:
    names = ", ".join(f"\\fB{roff(name)}\\fR" for name in entry.names)
    value = f" \\fI{roff(entry.value)}\\fR" if entry.value else ""
    return [".TP", names + value, roff(entry.text)]


def _usage(name: str, command: Help) -> str:
    words = "".join(f" \\fI{roff(entry.value)}\\fR" for entry in command.positionals)
    return f".SS \\fBpecia {name}\\fR [\\fIoptions\\fR]{words}"


def man_page(template: str, commands: CommandLine) -> str:
    """The template with @VERSION@, and with @COMMANDS@ replaced by every command and its options."""
    lines = []
    for name, command in commands.commands.items():
        lines += [_usage(name, command), roff(command.about)]
        for option in command.options:
            if "--help" not in option.names:
                lines += _entry(option)
        if command.examples:
            lines += [
                ".PP",
                ".nf",
                *(f"    {roff(example)}" for example in command.examples),
                ".fi",
            ]
    general = [line for option in commands.main.options for line in _entry(option)]
    page = template.replace("@VERSION@", commands.version)
    return page.replace("@COMMANDS@", "\n".join(lines)).replace("@OPTIONS@", "\n".join(general))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=__doc__,
        epilog="example: scripts/make-man --program build/release/bin/pecia",
    )
    parser.add_argument(
        "--program", type=Path, default=ROOT / "build/release/bin/pecia", help="the built command"
    )
    parser.add_argument("--output", type=Path, default=SHARE, help="folder of the files")
    options = parser.parse_args(arguments)
    commands = read_command_line(options.program)
    made = {
        "pecia.1": man_page(TEMPLATE.read_text(encoding="utf-8"), commands),
        "pecia.bash": bash_completion(commands),
        "_pecia": zsh_completion(commands),
        "pecia-tools.bash": bash_tools(),
        "_pecia_tools": zsh_tools(),
    }
    for name, text in made.items():
        with temporary_file(options.output / name) as path:
            path.write_text(text, encoding="utf-8")
    note(PROGRAM, f"{', '.join(made)} in {options.output}")
    return 0


if __name__ == "__main__":
    run(PROGRAM, main)
