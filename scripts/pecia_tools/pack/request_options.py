# SPDX-License-Identifier: Apache-2.0
"""What a line, or one of its turns, may ask for: lengths, sampling, stop strings, several choices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Optional

from .answer_shape import SHAPE_KEYS, read_shape
from .inputs import Sampling
from .json_line import Line, Path, kind, name_of, shown

LENGTH_KEYS = ("max_new_tokens", "max_tokens", "max_completion_tokens")
SEED_KEYS = ("seed", "random_seed")  # OpenAI's and Mistral's name
NUMBER_KEYS = ("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
SAMPLING_KEYS = (
    *LENGTH_KEYS,
    *("temperature", "top_p", "top_k", *NUMBER_KEYS, "logit_bias", "ignore_eos"),
    *SEED_KEYS,
    "stop",
    *SHAPE_KEYS,
)
MOST_CHOICES = 1024
TOKEN = re.compile("0|[1-9][0-9]{0,8}")
LEAST_SEED = -(2**63) + 1  # one less stands for no seed in a shard
LARGEST_TEMPERATURE = 1e6
LEAST_TOP_P = 1e-37  # of float32, less is rounded towards 0


def read_sampling(line: Line, container: dict[str, Any], path: Path, vocab_size: int) -> Sampling:
    """The options among the keys of `container`, which stands at `path` of the line."""

    def number(key: str, whole: bool, legal: Any, range_text: str) -> Any:
        return line.number(container.get(key), (*path, key), whole, legal, range_text)

    def same(keys: Sequence[str], legal: Any, range_text: str) -> Any:
        """Of keys that mean the same, the value that is given."""
        values = {key: number(key, True, legal, range_text) for key in keys}
        given = [(key, value) for key, value in values.items() if value is not None]
        for (first, value), (other, next_value) in zip(given, given[1:]):
            if value != next_value:
                raise line.error((*path, first), f"contradicts '{name_of((*path, other))}'")
        return given[0][1] if given else None

    def penalty(key: str) -> Any:
        return number(key, False, lambda v: -2 <= v <= 2, "a number from -2 to 2")

    top_k = number("top_k", True, lambda v: -1 <= v < 2**31, "a whole number from 0, or -1 for all")
    return Sampling(
        max_new_tokens=same(LENGTH_KEYS, lambda v: 1 <= v < 2**31, "a whole number from 1"),
        temperature=number(
            "temperature", False, lambda v: 0 <= v <= LARGEST_TEMPERATURE, "a number from 0 to 1e6"
        ),
        top_p=number(
            "top_p", False, lambda v: LEAST_TOP_P <= v <= 1, "a number above 0 and up to 1"
        ),
        seed=same(
            SEED_KEYS, lambda v: LEAST_SEED <= v < 2**63, "a whole number of 64 bits above -2^63"
        ),
        stop=_stop(line, container.get("stop"), (*path, "stop")),
        shape=read_shape(line, container, path),
        top_k=None if top_k is None else max(0, top_k),
        min_p=number("min_p", False, lambda v: 0 <= v <= 1, "a number from 0 to 1"),
        repetition_penalty=number(
            "repetition_penalty", False, lambda v: 0.01 <= v <= 100, "a number from 0.01 to 100"
        ),
        presence_penalty=penalty("presence_penalty"),
        frequency_penalty=penalty("frequency_penalty"),
        ignore_eos=_flag(line, container.get("ignore_eos"), (*path, "ignore_eos")),
        logit_bias=_logit_bias(
            line, container.get("logit_bias"), (*path, "logit_bias"), vocab_size
        ),
        logprobs=_logprobs(container),
    )


def _logprobs(container: dict[str, Any]) -> Optional[int]:
    """How many are asked for; request_keys.check_key refuses what is no number, and more than the job has."""
    asked = (container.get(key) for key in ("logprobs", "top_logprobs"))
    return max((int(number) for number in asked if isinstance(number, int)), default=0) or None


def read_choices(line: Line, container: dict[str, Any], path: Path) -> int:
    choices = line.number(
        container.get("n"),
        (*path, "n"),
        True,
        lambda v: 1 <= v <= MOST_CHOICES,
        f"a whole number from 1 to {MOST_CHOICES}",
    )
    return 1 if choices is None else choices


def _flag(line: Line, value: Any, path: Path) -> Optional[bool]:
    if value is not None and not isinstance(value, bool):
        raise line.error(path, f"is {shown(value)}, but must be true or false")
    return value


def _logit_bias(
    line: Line, value: Any, path: Path, vocab_size: int
) -> Optional[tuple[tuple[int, float], ...]]:
    """OpenAI's map from token ids, written as text, to what is added to their logits."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise line.error(path, f"must be an object of token ids and numbers, not {kind(value)}")
    biases = []
    for key, bias in value.items():
        place = (*path, key)
        token = int(key) if TOKEN.fullmatch(key) else vocab_size
        if token >= vocab_size:
            raise line.error(
                place, f"is no token id of this model, a whole number from 0 to {vocab_size - 1}"
            )
        if bias is None:
            raise line.error(place, "is null, but must be a number from -100 to 100")
        line.number(bias, place, False, lambda v: -100 <= v <= 100, "a number from -100 to 100")
        biases.append((token, float(bias)))
    return tuple(sorted(biases)) or None


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
