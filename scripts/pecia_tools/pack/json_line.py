# SPDX-License-Identifier: Apache-2.0
"""One line of JSON with its place, for errors that name file, line, column and key."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]  # typeshed leaves it out
from typing import Any, Callable, Union

from .decoding import BadInput

Path = tuple[Union[str, int], ...]  # ("body", "messages", 1, "role") is body.messages[1].role
_BLANK = re.compile(r"[ \t\r\n]*")
MOST_LEVELS = 100  # of objects and lists in each other
MOST_DIGITS = 309  # of the largest number that a double holds
SHOWN = 80  # characters of a value in a message
NAMES = ("custom_id", "id")
TOO_DEEP = f"objects and lists stand in each other more than {MOST_LEVELS} times"
_SCANNER = json.JSONDecoder(parse_int=str, parse_float=str)
_UNTEXT = re.compile("[\0\ud800-\udfff]")
_BRACKET_OR_STRING = re.compile(r'[][{}]|"(?:[^"\\]|\\.)*"')


class Line:
    """An object that means the same to every reader of JSON: no key stands twice in one object, and numbers are finite.
    `name` is the line's own id, or else the one that is given here."""

    def __init__(self, where: str, text: str, name: str = "") -> None:
        self.where = where
        self.name = name
        self._text = text.rstrip(
            "\r\n"
        )  # else the end of the line would count as a line of its own
        if _is_deep(self._text):
            raise self._bad("", TOO_DEEP)
        reader = _Reader()
        try:
            value = reader.read(self._text)
        except json.JSONDecodeError as error:
            raise self._bad(f":{error.pos + 1}", f"not JSON ({error.msg})") from None
        if not isinstance(value, dict):
            raise self.problem((), f"a JSON object is expected, not {kind(value)}")
        self.value: dict[str, Any] = value
        self.name = next((value[key] for key in NAMES if is_name(value.get(key))), name)
        for path, found in _walk(value) if reader.found_any else ():
            if id(found) in reader.repeated:
                key = reader.repeated[id(found)]
                raise self.error((*path, key), "stands twice in one object; leave one out")
            if isinstance(found, float) and not math.isfinite(found):
                raise self.error(path, f"is {shown(found)}, but must be a finite number of 64 bits")

    def problem(self, path: Path, what: str) -> BadInput:
        """At the key itself, or where what should hold it begins."""
        return self._bad(f":{_column(self._text, path)}", what)

    def _bad(self, column: str, what: str) -> BadInput:
        return BadInput(self.where + column, what, self.name)

    def error(self, path: Path, what: str) -> BadInput:
        return self.problem(path, f"key '{name_of(path)}' {what}")

    def text(self, value: Any, path: Path) -> str:
        if not isinstance(value, str):
            raise self.error(path, f"must be a string, not {kind(value)}")
        if not value.strip():
            raise self.error(path, "is empty")
        return self.characters(value, path)

    def characters(self, value: str, path: Path) -> str:
        found = _UNTEXT.search(value)
        if found and found.group() == "\0":
            raise self.error(path, "contains NUL (\\u0000), which no text has")
        if found:
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
            raise self.error(path, f"is {shown(value)}, but must be {range_text}")
        return value


def is_name(value: Any) -> bool:
    """Whether a request can have this id."""
    return isinstance(value, str) and value.strip() != "" and not _UNTEXT.search(value)


def shown(value: Any) -> str:
    """As JSON, shortened."""
    text = json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


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


class _Reader:
    """Reads JSON and notes what does not mean the same to every reader."""

    def __init__(self) -> None:
        self.repeated: dict[int, str] = {}  # by the object's identity, a key that it has twice
        self._kept: list[dict[str, Any]] = []  # so that an identity stays one object's
        self._is_infinite = False

    def read(self, text: str) -> Any:
        return json.loads(
            text,
            object_pairs_hook=self._object,
            parse_int=self._whole,
            parse_float=self._real,
            parse_constant=self._real,
        )

    @property
    def found_any(self) -> bool:
        return bool(self.repeated) or self._is_infinite

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            self.repeated[id(value)] = next(key for key, count in counts.items() if count > 1)
            self._kept.append(value)
        return value

    def _whole(self, digits: str) -> Union[int, float]:
        return int(digits) if len(digits) <= MOST_DIGITS else self._real(digits)

    def _real(self, digits: str) -> float:
        value = float(digits)
        self._is_infinite = self._is_infinite or not math.isfinite(value)
        return value


def _walk(value: Any) -> Iterator[tuple[Path, Any]]:
    """All that is in a value, outermost first."""
    waiting: deque[tuple[Path, Any]] = deque([((), value)])
    while waiting:
        path, found = waiting.popleft()
        yield path, found
        inside: Iterable[tuple[Any, Any]] = found.items() if isinstance(found, dict) else ()
        if isinstance(found, list):
            inside = enumerate(found)
        waiting.extend(((*path, step), v) for step, v in inside)


def _is_deep(text: str) -> bool:
    """Found before the text is parsed: how deep the parser comes depends on how deep its caller stands."""
    if text.count("[") + text.count("{") <= MOST_LEVELS:
        return False
    level = 0
    for token in _BRACKET_OR_STRING.finditer(text):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if level > MOST_LEVELS:
            return True
    return False


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
        _, at = _SCANNER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
        index += 1
    return found


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at
