# SPDX-License-Identifier: Apache-2.0
"""Reads command lines; unknown arguments are named in their order, each with the option that it nearly is."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from . import VERSION
from .command import nearest


def add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--version", action="version", version=f"{parser.prog} {VERSION}", help="print the version and exit"
    )


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Exits with 2 and a message when something is wrong, as argparse does."""
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        known = [name for action in parser._actions for name in action.option_strings]
        parser.error("unknown " + ", ".join(_named(argument, known) for argument in unknown))
    return options


def _named(argument: str, known: Sequence[str]) -> str:
    name = argument.partition("=")[0]
    near = nearest(name, known) if name.startswith("--") else None
    return f"{argument} (did you mean {near}?)" if near else argument
