# SPDX-License-Identifier: Apache-2.0
"""What a line, or one of its turns, is to give besides text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

from .inputs import PRODUCE, Sampling
from .json_line import Line, Path, kind, shown

PRODUCT_KEYS = ("produce", "continuations", "spans")


def read_product(line: Line, container: dict[str, Any], path: Path, sampling: Sampling) -> Sampling:
    """`sampling` with what the keys of `container`, which stands at `path` of the line, say."""
    produce = container.get("produce")
    if produce is None and container.get("continuations") is not None:
        produce = "score"
    if produce is not None and produce not in PRODUCE:
        raise line.error(
            (*path, "produce"), f"is {shown(produce)}, but must be one of {', '.join(PRODUCE)}"
        )
    return replace(
        sampling,
        produce=None if produce is None else PRODUCE.index(produce),
        continuations=_continuations(line, container, (*path, "continuations")),
        spans=_spans(line, container.get("spans"), (*path, "spans")),
    )


def _continuations(line: Line, container: dict[str, Any], path: Path) -> Optional[tuple[str, ...]]:
    value = container.get("continuations")
    if value is None:
        return None
    if container.get("produce") not in (None, "score", "rerank"):
        raise line.error(path, "needs 'produce' score or rerank")
    if not isinstance(value, list) or not value:
        raise line.error(path, f"must be a list of at least one string, not {kind(value)}")
    for index, text in enumerate(value):
        if line.text(text, (*path, index)) == "":
            raise line.error((*path, index), "is empty")
    return tuple(value)


def _spans(line: Line, value: Any, path: Path) -> Optional[tuple[tuple[int, int], ...]]:
    """Token ranges of the prompt as it is encoded, templates included."""
    if value is None:
        return None
    is_list = isinstance(value, list) and value
    if not is_list or not all(isinstance(span, list) and len(span) == 2 for span in value):
        raise line.error(path, "must be a list of [begin, end), each of two whole numbers")
    for index, span in enumerate(value):
        for end, number in enumerate(span):
            line.number(
                number,
                (*path, index, end),
                True,
                lambda v: 0 <= v < 2**31,
                "a number of tokens from 0",
            )
        if span[0] >= span[1]:
            raise line.error((*path, index), f"is {shown(span)}, and ends before it has begun")
    return tuple((span[0], span[1]) for span in value)
