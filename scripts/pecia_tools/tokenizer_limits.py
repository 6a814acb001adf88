# SPDX-License-Identifier: Apache-2.0
"""Refuses a tokenizer.json that would make gigabytes of a short text, and says what its library cannot do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tokenizers import Tokenizer

from .command import UserError

LONGEST_TOKEN = 4096  # characters; those of models have up to some hundreds, of blanks or dashes
LONGEST_CONTENT = 1024  # characters that are put for others
LONGEST_REGEX = 1 << 14
MOST_ADDED = 1024  # special tokens around each text
MAX_GROWTH = 64  # characters for one, by all replacements together
_REPEATS = 4  # of what is replaced, so that replacements also meet what others leave side by side
_PARTS = ("normalizer", "pre_tokenizer", "decoder")
_CHILDREN = ("normalizers", "pretokenizers", "decoders")

Step = dict[str, Any]


def check_tokenizer(tokenizer: Tokenizer, where: str) -> None:
    """A UserError for what no model's tokenizer needs."""
    for part in _PARTS:
        found = getattr(tokenizer, part)
        if found is not None:
            _check_steps(list(_steps(json.loads(found.__getstate__()))), f"{where}: its {part}")
    longest = max(map(len, tokenizer.get_vocab()), default=0)
    if longest > LONGEST_TOKEN:
        raise UserError(f"{where}: a token has {longest} characters; {LONGEST_TOKEN} are allowed")
    added = tokenizer.num_special_tokens_to_add(False)
    if added > MOST_ADDED:
        raise UserError(
            f"{where}: it puts {added} special tokens around each text; {MOST_ADDED} are allowed"
        )


@contextmanager
def panics_told() -> Iterator[None]:
    """The library ends a thread where a regular expression takes too long; that is no Exception of Python."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise UserError(f"the tokenizer of the model fails with a text: {error}") from error


def _steps(part: Step) -> Iterator[Step]:
    for name in _CHILDREN:
        for child in part.get(name, ()):
            yield from _steps(child)
    yield part


def _check_steps(steps: list[Step], where: str) -> None:
    for step in steps:
        regex = _pattern(step).get("Regex", "")
        if len(regex) > LONGEST_REGEX:
            raise UserError(
                f"{where} has a regular expression of {len(regex)} characters; {LONGEST_REGEX} are allowed"
            )
        for key in ("content", "prepend"):
            if len(step.get(key) or "") > LONGEST_CONTENT:
                raise UserError(
                    f"{where} puts a text of {len(step[key])} characters into others; {LONGEST_CONTENT} are allowed"
                )
    replacing = [step for step in steps if step["type"] == "Replace"]
    if any(_grows_too_much(replacing[first:]) for first in range(len(replacing))):
        raise UserError(
            f"{where} makes more than {MAX_GROWTH} characters of one by its replacements; no model needs that"
        )


def _pattern(step: Step) -> dict[str, str]:
    pattern = step.get("pattern")
    return pattern if isinstance(pattern, dict) else {}


def _grows_too_much(steps: list[Step]) -> bool:
    """What the first step replaces goes through all of them. A regular expression may find every character."""
    first = _pattern(steps[0]).get("String") or "x"
    text = first * _REPEATS
    most = MAX_GROWTH * len(text)
    for step in steps:
        content = step["content"]
        pattern = _pattern(step).get("String")
        if pattern:
            text = text.replace(pattern, content)
        elif len(content) > 1 or step is steps[0]:
            text = content * len(text)
        if len(text) > most:
            return True
    return False
