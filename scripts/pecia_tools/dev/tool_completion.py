# SPDX-License-Identifier: Apache-2.0
"""Completion of the helpers' options, choices and files, for bash and zsh, from their own parsers."""

from __future__ import annotations

import argparse
import re
import shlex

from ..gguf import main as import_gguf
from ..pack import options as pack_options
from ..report import main as report
from ..summarize import options as summarize_options
from ..text import options as text_options

MADE_OF_TOOLS = "Made by scripts/make-man from the commands' own parsers; do not edit."
# The word that names a value says whether it is a folder, a file, or nothing that a shell knows.
FOLDERS = ("DIR", "OUTDIR", "RUN_DIR")
FILES = ("FILE", "PATH", "IN", "INPUT", "BOOK", "RESULTS")
SETUP = ("python", "books", "report", "--help", "--version")


def tool_parsers() -> list[argparse.ArgumentParser]:
    modules = (import_gguf, pack_options, report, summarize_options, text_options)
    return [module.make_parser() for module in modules]


def _takes_value(action: argparse.Action) -> bool:
    return bool(action.option_strings) and action.nargs != 0


def _function(name: str) -> str:
    return "_" + re.sub(r"\W", "_", name)


def _bash_value(action: argparse.Action) -> str:
    if action.choices:
        return f"_pecia_tool_words {shlex.quote(' '.join(map(str, action.choices)))}"
    if action.metavar in FOLDERS:
        return "_pecia_tool_files -d"
    return "_pecia_tool_files -f" if action.metavar in FILES else ":"


def _bash_tool(parser: argparse.ArgumentParser) -> list[str]:
    options = [name for action in parser._actions for name in action.option_strings]
    values = [
        f"    {' | '.join(action.option_strings)}) {_bash_value(action)}; return ;;"
        for action in parser._actions
        if _takes_value(action)
    ]
    return [
        f"{_function(parser.prog)}() {{",
        "  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}",
        "  COMPREPLY=()",
        *(["  case $previous in", *values, "  esac"] if values else []),
        f"  if [[ $word == -* ]]; then _pecia_tool_words {shlex.quote(' '.join(options))}",
        "  else _pecia_tool_files -f; fi",
        "}",
        f"complete -F {_function(parser.prog)} {parser.prog}",
        "",
    ]


def bash_tools() -> str:
    return "\n".join(
        [
            f"# shellcheck shell=bash\n# {MADE_OF_TOOLS}",
            "",
            "_pecia_tool_words() { # WORDS",
            '  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$word")',
            "}",
            "",
            "_pecia_tool_files() { # -d: folders; -f: files and folders",
            "  compopt -o filenames",
            '  mapfile -t COMPREPLY < <(compgen "$1" -- "$word")',
            "}",
            "",
            *(line for parser in tool_parsers() for line in _bash_tool(parser)),
            f"complete -W {shlex.quote(' '.join(SETUP))} pecia-setup",
            "",
        ]
    )


def _zsh_text(text: str) -> str:
    return "".join("\\" + c if c in "[]:\\" else c for c in text)


def _zsh_value(action: argparse.Action) -> str:
    if action.choices:
        return f":value:({' '.join(map(str, action.choices))})"
    if action.metavar in FOLDERS:
        return ":folder:_files -/"
    if action.metavar in FILES:
        return ":file:_files"
    return f":{_zsh_text(str(action.metavar or action.dest)).lower()}: "


def _zsh_tool(parser: argparse.ArgumentParser) -> list[str]:
    words = []
    for action in parser._actions:
        text = _zsh_text(" ".join((action.help or "").replace("%%", "%").split()))
        for name in action.option_strings:
            value = _zsh_value(action) if _takes_value(action) else ""
            repeated = "*" if isinstance(action, argparse._AppendAction) else ""
            words.append(f"{repeated}{name}[{text}]{value}")
    words.append("*:file:_files")
    return [f"  {parser.prog})", "    _arguments \\", *(f"      {shlex.quote(w)} \\" for w in words[:-1]),
            f"      {shlex.quote(words[-1])} ;;"]  # fmt: skip


def zsh_tools() -> str:
    parsers = tool_parsers()
    return "\n".join(
        [
            f"#compdef {' '.join(parser.prog for parser in parsers)} pecia-setup\n"
            f"# {MADE_OF_TOOLS}",
            "",
            "case $service in",
            *(line for parser in parsers for line in _zsh_tool(parser)),
            f"  pecia-setup) _arguments '1:what:({' '.join(SETUP)})' ;;",
            "esac",
            "",
        ]
    )
