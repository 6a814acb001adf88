# SPDX-License-Identifier: Apache-2.0
"""What a line, or one of its turns, may ask for: lengths, sampling, stop strings, several choices."""

from __future__ import annotations

from typing import Any, Optional

from .answer_shape import SHAPE_KEYS, read_shape
from .inputs import Sampling
from .json_line import Line, Path, kind, name_of

LENGTH_KEYS = ("max_new_tokens", "max_tokens", "max_completion_tokens")
SAMPLING_KEYS = (*LENGTH_KEYS, "temperature", "top_p", "seed", "stop", *SHAPE_KEYS)
MOST_CHOICES = 1024
LEAST_SEED = -(2**63) + 1  # one less stands for no seed in a shard
LARGEST_TEMPERATURE = 1e6


def read_sampling(line: Line, container: dict[str, Any], path: Path) -> Sampling:
    """The options among the keys of `container`, which stands at `path` of the line."""

    def number(key: str, whole: bool, legal: Any, range_text: str) -> Any:
        return line.number(container.get(key), (*path, key), whole, legal, range_text)

    lengths = {
        key: number(key, True, lambda v: 1 <= v < 2**31, "a whole number from 1")
        for key in LENGTH_KEYS
    }
    given = {key: value for key, value in lengths.items() if value is not None}
    if len(set(given.values())) > 1:
        first, other = (
            list(given)[:2] if len(set(list(given.values())[:2])) > 1 else list(given)[1:]
        )
        raise line.error((*path, first), f"contradicts '{name_of((*path, other))}'")
    return Sampling(
        max_new_tokens=next(iter(given.values()), None),
        temperature=number(
            "temperature", False, lambda v: 0 <= v <= LARGEST_TEMPERATURE, "a number from 0 to 1e6"
        ),
        top_p=number("top_p", False, lambda v: 0 < v <= 1, "a number above 0 and up to 1"),
        seed=number(
            "seed", True, lambda v: LEAST_SEED <= v < 2**63, "a whole number of 64 bits above -2^63"
        ),
        stop=_stop(line, container.get("stop"), (*path, "stop")),
        shape=read_shape(line, container, path),
    )


def read_choices(line: Line, container: dict[str, Any], path: Path) -> int:
    choices = line.number(
        container.get("n"),
        (*path, "n"),
        True,
        lambda v: 1 <= v <= MOST_CHOICES,
        f"a whole number from 1 to {MOST_CHOICES}",
    )
    return 1 if choices is None else choices


def _stop(line: Line, value: Any, path: Path) -> Optional[tuple[str, ...]]:
    """An empty list asks for no stop string, also where the job file has some."""
    if value is None:
        return None
    if not isinstance(value, (str, list)):
        raise line.error(path, f"must be a string or a list of strings, not {kind(value)}")
    strings = [value] if isinstance(value, str) else value
    for index, string in enumerate(strings):
        place = path if isinstance(value, str) else (*path, index)
        if not isinstance(string, str):
            raise line.error(place, f"must be a string, not {kind(string)}")
        if not string:
            raise line.error(place, "is empty; it would stop every answer at once")
        line.characters(string, place)
    return tuple(strings)
