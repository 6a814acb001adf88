# SPDX-License-Identifier: Apache-2.0
"""One line of JSON with its place, for errors that name file, line, column and key."""

from __future__ import annotations

import json
import math
import re
from json.decoder import scanstring
from typing import Any, Callable, Union

from .decoding import BadInput

Path = tuple[Union[str, int], ...]  # ("body", "messages", 1, "role") is body.messages[1].role
_BLANK = re.compile(r"[ \t\r\n]*")


class Line:
    def __init__(self, where: str, text: str) -> None:
        self.where = where
        self._text = text.rstrip(
            "\r\n"
        )  # else the end of the line would count as a line of its own
        try:
            value = json.loads(self._text)
        except json.JSONDecodeError as error:
            raise BadInput(f"{where}:{error.pos + 1}", f"not JSON ({error.msg})") from None
        except (
            RecursionError,
            ValueError,
        ) as error:  # too deep, or a number of thousands of digits
            raise BadInput(where, f"not JSON that can be read ({error})") from None
        if not isinstance(value, dict):
            raise self.problem((), f"a JSON object is expected, not {kind(value)}")
        self.value: dict[str, Any] = value

    def problem(self, path: Path, what: str) -> BadInput:
        """At the key itself, or where what should hold it begins."""
        return BadInput(f"{self.where}:{_column(self._text, path)}", what)

    def error(self, path: Path, what: str) -> BadInput:
        return self.problem(path, f"key '{name_of(path)}' {what}")

    def text(self, value: Any, path: Path) -> str:
        if not isinstance(value, str):
            raise self.error(path, f"must be a string, not {kind(value)}")
        if not value.strip():
            raise self.error(path, "is empty")
        return self.characters(value, path)

    def characters(self, value: str, path: Path) -> str:
        if "\0" in value:
            raise self.error(path, "contains NUL (\\u0000), which no text has")
        if any(0xD800 <= ord(character) <= 0xDFFF for character in value):
            raise self.error(path, "contains half of a surrogate pair, which no UTF-8 text has")
        return value

    def number(
        self, value: Any, path: Path, whole: bool, legal: Callable[[float], bool], range_text: str
    ) -> Any:
        """None where there is none."""
        if value is None:
            return None
        kinds = (int,) if whole else (int, float)
        if (
            isinstance(value, bool)
            or not isinstance(value, kinds)
            or (isinstance(value, float) and not math.isfinite(value))
            or not legal(value)
        ):
            raise self.error(path, f"is {json.dumps(value)}, but must be {range_text}")
        return value


def kind(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "true or false",
        type(None): "nothing",
    }
    return names.get(type(value), "a number")


def name_of(path: Path) -> str:
    name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return name.removeprefix(".")


def _column(text: str, path: Path) -> int:
    """Counted from 1; where the path ends early, the column of the last that is there."""
    at = _skip(text, 0)
    column = at
    for step in path:
        found = _member(text, at, step)
        if found is None:
            break
        column, at = found
    return column + 1


def _member(text: str, at: int, step: Union[str, int]) -> Union[tuple[int, int], None]:
    """(where the key or entry stands, where its value begins) in the object or list at `at`."""
    if text[at] != ("{" if isinstance(step, str) else "["):
        return None
    decoder = json.JSONDecoder()
    found = None
    index = 0
    at = _skip(text, at + 1)
    while text[at] not in "}]":
        begin = at
        key: Union[str, int] = index
        if isinstance(step, str):
            key, at = scanstring(text, at + 1)
            at = _skip(text, _skip(text, at) + 1)  # the colon
        if key == step:
            found = (begin, at)  # of equal keys the last counts
        _, at = decoder.raw_decode(text, at)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
        index += 1
    return found


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at
