# SPDX-License-Identifier: Apache-2.0
"""Datasets of a prompt shard that are there only if a request has something to say in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np

from .packed import Span
from .structure import CHAPTER, PAGE, Position

TEXT = "UTF-8"
POSITIONS = "positions"
SKIPPED, SKIPPED_COLUMNS = "skipped", ("custom_id", "where", "message")
POSITION_KINDS = (CHAPTER, PAGE)


class OptionalColumn:
    """A dataset with a value for each row, and none if no row has one. `absent` stands where a row has none."""

    def __init__(self, key: str, dtype: Any, absent: Any) -> None:
        self._key = key
        self._dtype = dtype
        self._absent = absent
        self._values: list[Any] = []
        self._is_given = False

    def append(self, value: Any) -> None:
        self._values.append(self._absent if value is None else value)
        self._is_given = self._is_given or value is not None

    def write(self, file: h5py.File) -> None:
        if not self._is_given:
            return
        if self._dtype is TEXT:
            write_texts(file, self._key, self._values)
        else:
            file.create_dataset(self._key, data=np.array(self._values, dtype=self._dtype))


def write_texts(file: h5py.Group, key: str, texts: list[str]) -> None:
    """UTF-8 of fixed length, the longest text's."""
    encoded = [text.encode("utf-8", errors="replace") for text in texts]
    longest = max(1, max(map(len, encoded), default=1))
    file.create_dataset(key, data=np.array(encoded, dtype=h5py.string_dtype("utf-8", longest)))


class LogitBiasRows:
    """What is added to logits, N tokens of all turns together; no dataset if no turn has one.

    logit_bias_offsets  int64 [turns+1]   turn t has the rows offsets[t] … offsets[t+1]-1
    logit_bias_tokens   int32 [N]         of a turn in ascending order, each once
    logit_bias          float32 [N]       from -100 to 100
    """

    def __init__(self) -> None:
        self._offsets = [0]
        self._rows: list[tuple[int, float]] = []

    def append(self, rows: Sequence[tuple[int, float]]) -> None:
        self._rows += rows
        self._offsets.append(len(self._rows))

    def write(self, file: h5py.File) -> None:
        if not self._rows:
            return
        file["logit_bias_offsets"] = np.array(self._offsets, dtype=np.int64)
        file["logit_bias_tokens"] = np.array([token for token, _ in self._rows], dtype=np.int32)
        file["logit_bias"] = np.array([bias for _, bias in self._rows], dtype=np.float32)


class SpanRows:
    """Tokens of turns that vectors are means of, N of all turns together; no dataset if no turn has one.

    span_offsets  int64 [turns+1]   turn t has the rows offsets[t] … offsets[t+1]-1
    spans         int64 [N, 2]      [begin, end) in the turn's tokens
    """

    def __init__(self) -> None:
        self._offsets = [0]
        self._rows: list[Span] = []

    def append(self, rows: Sequence[Span]) -> None:
        self._rows += rows
        self._offsets.append(len(self._rows))

    def write(self, file: h5py.File) -> None:
        if not self._rows:
            return
        file["span_offsets"] = np.array(self._offsets, dtype=np.int64)
        file["spans"] = np.array(self._rows, dtype=np.int64)


class ContinuationRows:
    """What is scored after turns, N continuations of all turns together; no dataset if no turn has one.

    continuation_offsets  int64 [turns+1]   turn t has the rows offsets[t] … offsets[t+1]-1
    continuation_lengths  int32 [N]         tokens of each
    continuation_tokens   int32 [Σ]         one after the other
    """

    def __init__(self) -> None:
        self._offsets = [0]
        self._rows: list[Sequence[int]] = []

    def append(self, rows: Sequence[Sequence[int]]) -> None:
        self._rows += rows
        self._offsets.append(len(self._rows))

    def write(self, file: h5py.File) -> None:
        if not self._rows:
            return
        file["continuation_offsets"] = np.array(self._offsets, dtype=np.int64)
        file["continuation_lengths"] = np.array([len(row) for row in self._rows], dtype=np.int32)
        file["continuation_tokens"] = np.concatenate(self._rows).astype(np.int32)


class SkippedRows:
    """The group /skipped: inputs that were left out, each with the id that its answer would have had. A run does not
    read it; whoever writes the answers down gives these an error each.

    custom_id   fixed UTF-8 [N]
    where       fixed UTF-8 [N]   file, line and column
    message     fixed UTF-8 [N]
    """

    def __init__(self, rows: Sequence[tuple[str, str, str]]) -> None:
        self._rows = rows

    def write(self, file: h5py.File) -> None:
        if not self._rows:
            return
        group = file.create_group(SKIPPED)
        for key, texts in zip(SKIPPED_COLUMNS, zip(*self._rows)):
            write_texts(group, key, list(texts))


class PositionRows:
    """The group /positions, N chapters and pages of all requests together, those of a request in the order of its text.
    A reader that does not know the group loses nothing else.

    offsets     int64 [requests+1]   request r has the rows offsets[r] … offsets[r+1]-1
    kind        uint8 enum [N]       chapter 0, page 1
    depth       uint8 [N]            of a chapter, 1 is the outermost; 0 for pages
    label       fixed UTF-8 [N]      the chapter's title; the page's number as the document writes it
    characters  int64 [N, 2]         [begin, end) in the text of the whole document
    tokens      int64 [N, 2]         [begin, end) in the request's first turn; -1, -1: not known
    """

    def __init__(self) -> None:
        self._offsets = [0]
        self._rows: list[tuple[Position, Span]] = []

    def append(self, rows: Sequence[tuple[Position, Span]]) -> None:
        self._rows += sorted(
            rows, key=lambda row: (row[0].begin, row[0].kind != PAGE, row[0].depth)
        )
        self._offsets.append(len(self._rows))

    def write(self, file: h5py.File) -> None:
        if not self._rows:
            return
        group = file.create_group(POSITIONS)
        found = [position for position, _ in self._rows]
        kinds = h5py.enum_dtype({k: n for n, k in enumerate(POSITION_KINDS)}, basetype="u1")
        group["offsets"] = np.array(self._offsets, dtype=np.int64)
        group.create_dataset(
            "kind", data=[POSITION_KINDS.index(p.kind) for p in found], dtype=kinds
        )
        group["depth"] = np.array([p.depth for p in found], dtype=np.uint8)
        write_texts(group, "label", [p.label for p in found])
        group["characters"] = np.array([(p.begin, p.end) for p in found], dtype=np.int64)
        group["tokens"] = np.array([tokens for _, tokens in self._rows], dtype=np.int64)
