# SPDX-License-Identifier: Apache-2.0
"""The options of pecia-summarize that a job file has: `pipeline` holds those of the command by their names, and the
model, the output and the longest answer stand where every job has them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ..command import UserError, suggestion
from ..model_folder import read_text

KIND = "summary"
SECTION = "pipeline"
BOOKS = "books"
OF_JOB = {"model.path": "model", "output": "output", "generation.max_new_tokens": "max_new_tokens"}
OF_CALL = ("help", "job", "pecia", "set", "fresh")  # options of the command alone


class Value(NamedTuple):
    key: str  # "pipeline.prompt_part"
    where: str  # "job.yaml:7"
    value: Any


def take_job(parser: argparse.ArgumentParser, path: Path) -> None:
    """What the job file says becomes the parser's defaults, so options of the command line come before it. Paths are
    relative to the file. Raises UserError with the line of what is wrong; `pecia run` judges the other keys."""
    values = {value.key: value for value in _values(path)}
    if "input" in values:
        raise UserError(
            f"{values['input'].where}: input names prompt shards, which {SECTION} makes itself; the books stand in "
            f"{SECTION}.books"
        )
    options = {
        f"{SECTION}.{action.dest}": action
        for action in parser._actions
        if action.dest not in (*OF_CALL, *OF_JOB.values())
    }
    options |= {key: _action(parser, option) for key, option in OF_JOB.items()}
    _check_kind(path, values.pop(f"{SECTION}.kind", None))
    for key, found in values.items():
        if key in options:
            _take(options[key], found, path.parent)
        elif key.startswith(f"{SECTION}."):
            raise _unknown(found, [name for name in options if name.startswith(SECTION)])


def _values(path: Path) -> Iterator[Value]:
    """The keys outside of sections and those in them."""
    loader = yaml.SafeLoader(read_text(path))
    try:
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise UserError(f"{path}: is no job file, which has keys with values")
        for name, node in root.value:
            where = f"{path}:{name.start_mark.line + 1}"
            if name.value == SECTION and not isinstance(node, yaml.MappingNode):
                raise UserError(f"{where}: {SECTION} is no section, as {SECTION}: {{kind: {KIND}, books: [books/]}}")
            if not isinstance(node, yaml.MappingNode):
                yield Value(name.value, where, loader.construct_object(node, deep=True))
                continue
            for key, value in node.value:
                where = f"{path}:{key.start_mark.line + 1}"
                full = f"{name.value}.{key.value}"
                yield Value(full, where, loader.construct_object(value, deep=True))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise UserError(f"{where}: {getattr(error, 'problem', None) or error}") from error
    finally:
        loader.dispose()


def _check_kind(path: Path, kind: Any) -> None:
    if kind is None:
        raise UserError(f"{path}: {SECTION}.kind is missing; it is {KIND}")
    if kind.value != KIND:
        raise UserError(f"{kind.where}: {kind.key} is {kind.value!r}; it may be {KIND}")


def _unknown(found: Value, known: list[str]) -> UserError:
    name = found.key.partition(".")[2]
    names = [key.partition(".")[2] for key in known]
    of_job = {option: key for key, option in OF_JOB.items()}
    if name in of_job:
        return UserError(f"{found.where}: {found.key} stands elsewhere in a job: {of_job[name]}")
    if name in OF_CALL:
        return UserError(f"{found.where}: {found.key} is an option of the command alone: --{name}")
    remedy = suggestion(name, names) or f"; {SECTION} has the keys kind, {', '.join(names)}"
    return UserError(f"{found.where}: unknown key '{found.key}'{remedy}")


def _action(parser: argparse.ArgumentParser, dest: str) -> argparse.Action:
    (found,) = (action for action in parser._actions if action.dest == dest)
    return found


def _take(action: argparse.Action, found: Value, folder: Path) -> None:
    """Makes the value the action's default."""
    if action.nargs == 0:
        if not isinstance(found.value, bool):
            raise UserError(f"{found.where}: {found.key} is {found.value!r}; it may be true | false")
        action.default = found.value
    elif action.dest == BOOKS or isinstance(action, argparse._AppendAction):
        values = found.value if isinstance(found.value, list) else [found.value]
        texts = [_converted(action, found, value, folder) for value in values]
        action.default = texts
    else:
        action.default = _converted(action, found, found.value, folder)
    if action.dest == BOOKS:
        action.nargs = "*"  # else argparse wants one in the command line
    action.required = False


def _converted(action: argparse.Action, found: Value, value: Any, folder: Path) -> Any:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise UserError(f"{found.where}: {found.key} is {value!r}; it may be {action.metavar}")
    if action.type is Path:
        return folder / str(value)
    if action.dest == BOOKS:
        return str(folder / str(value))
    try:
        return action.type(str(value)) if callable(action.type) else str(value)
    except (ValueError, argparse.ArgumentTypeError) as error:
        reason = f": {error}" if isinstance(error, argparse.ArgumentTypeError) else ""
        raise UserError(
            f"{found.where}: {found.key} is {value!r}; it may be {action.metavar}{reason}"
        ) from None
