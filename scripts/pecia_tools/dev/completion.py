# SPDX-License-Identifier: Apache-2.0
"""Completion of pecia's commands, options, job keys and files, for bash and zsh."""

from __future__ import annotations

import shlex

from .command_help import CommandLine, Entry

# What a value's name, as the help writes it, stands for in files; others are not completed.
ENDINGS = {"JOB.yaml": ("yaml", "yml", "json"), "PATH": ("h5",)}
KEYS = "KEY.PATH=VALUE"
FOLDER = "DIR"
MADE = "Made by scripts/make-man from the command's own help; do not edit."


def _names(entries: list[Entry]) -> str:
    return " ".join(name for entry in entries for name in entry.names)


def _bash_files(value: str) -> str:
    if value in ENDINGS:
        return "_pecia_files " + " ".join(ENDINGS[value])
    return "_pecia_files" if value == FOLDER else ":"


def _bash_command(name: str, commands: CommandLine) -> list[str]:
    found = commands.commands[name]
    values = []
    for option in found.options:
        if option.value:
            keys = option.value == KEYS
            what = '_pecia_words nospace "$keys"' if keys else _bash_files(option.value)
            values.append(f"        {' | '.join(option.names)}) {what}; return ;;")
    files = _bash_files(found.positionals[0].value) if found.positionals else ":"
    return [
        f"    {name})",
        *(["      case $previous in", *values, "      esac"] if values else []),
        f"      if [[ $word == -* ]]; then _pecia_words space {shlex.quote(_names(found.options))}",
        f"      else {files}; fi ;;",
    ]


def bash_completion(commands: CommandLine) -> str:
    names = [entry.names[0] for entry in commands.main.subcommands]
    first = " ".join([*names, _names(commands.main.options)])
    return "\n".join(
        [
            f"# shellcheck shell=bash\n# {MADE}",
            "",
            "_pecia_words() { # nospace|space WORDS",
            "  if [[ $1 == nospace ]]; then compopt -o nospace; fi",
            '  mapfile -t COMPREPLY < <(compgen -W "$2" -- "$word")',
            "}",
            "",
            "_pecia_files() { # ENDING…: folders, and files of these endings",
            "  local ending",
            "  compopt -o filenames",
            '  mapfile -t COMPREPLY < <(compgen -d -- "$word"',
            '    for ending in "$@"; do compgen -f -X "!*.$ending" -- "$word"; done)',
            "}",
            "",
            "_pecia() {",
            "  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}",
            f"  local keys='{' '.join(key + '=' for key in commands.job_keys)}'",
            "  COMPREPLY=()",
            "  if ((COMP_CWORD == 1)); then",
            f"    _pecia_words space {shlex.quote(first)}",
            "    return",
            "  fi",
            "  case ${COMP_WORDS[1]} in",
            *(line for name in names for line in _bash_command(name, commands)),
            "  esac",
            "}",
            "complete -F _pecia pecia",
            "",
        ]
    )


def _zsh_text(text: str) -> str:
    return "".join("\\" + c if c in "[]:\\" else c for c in text)


def _zsh_action(value: str, commands: CommandLine) -> str:
    if value == KEYS:
        keys = " ".join(key + "=" for key in commands.job_keys)
        return f":key: compadd -S '' -- {keys}"
    if value == FOLDER:
        return ":folder:_files -/"
    if value in ENDINGS:
        first, *others = ENDINGS[value]
        # Around a single ending parentheses would be qualifiers.
        ending = f"({'|'.join([first, *others])})" if others else first
        return f':file:_files -g "*.{ending}"'
    return f":{_zsh_text(value.lower())}: " if value else ""


def _zsh_option(option: Entry, commands: CommandLine) -> list[str]:
    repeated = "*" if option.value == KEYS else ""
    return [
        shlex.quote(
            f"{repeated}{name}[{_zsh_text(option.text)}]{_zsh_action(option.value, commands)}"
        )
        for name in option.names
    ]


def _zsh_command(name: str, commands: CommandLine) -> list[str]:
    found = commands.commands[name]
    arguments = [word for option in found.options for word in _zsh_option(option, commands)]
    arguments += [
        shlex.quote("1" + _zsh_action(entry.value, commands)) for entry in found.positionals
    ]
    return [f"    {name})", "      _arguments \\", *(f"        {a} \\" for a in arguments[:-1]),
            f"        {arguments[-1]} ;;"]  # fmt: skip


def zsh_completion(commands: CommandLine) -> str:
    described = [f"{e.names[0]}:{_zsh_text(e.text)}" for e in commands.main.subcommands]
    options = [word for option in commands.main.options for word in _zsh_option(option, commands)]
    return "\n".join(
        [
            f"#compdef pecia\n# {MADE}",
            "",
            "local curcontext=$curcontext state line",
            "local -a commands=(",
            *(f"  {shlex.quote(text)}" for text in described),
            ")",
            "_arguments -C \\",
            *(f"  {option} \\" for option in options),
            "  '1: :->command' '*:: :->argument'",
            "case $state in",
            "  command) _describe command commands ;;",
            "  argument)",
            "    case $line[1] in",
            *(line for name in commands.commands for line in _zsh_command(name, commands)),
            "    esac ;;",
            "esac",
            "",
        ]
    )
