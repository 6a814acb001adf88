# SPDX-License-Identifier: Apache-2.0
"""Writes prompt shards, schema "pecia.prompts/1"."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..command import UserError
from .packed import PackedRequest
from .request_options import LEAST_SEED
from .shard_columns import (
    TEXT,
    ContinuationRows,
    LogitBiasRows,
    OptionalColumn,
    PositionRows,
    SpanRows,
    write_texts,
)

SCHEMA = "pecia.prompts/1"
CHUNK_TOKENS = 1 << 16
# Per turn: type, and the value that leaves a turn to the job file.
TURN_OPTIONS: dict[str, tuple[Any, Any]] = {
    "max_new_tokens": (np.int32, -1),
    "temperature": (np.float32, math.nan),
    "top_p": (np.float32, math.nan),
    "seed": (np.int64, LEAST_SEED - 1),
    "stop": (TEXT, ""),
    "shape": (TEXT, ""),
    "top_k": (np.int32, -1),
    "min_p": (np.float32, math.nan),
    "repetition_penalty": (np.float32, math.nan),
    "presence_penalty": (np.float32, math.nan),
    "frequency_penalty": (np.float32, math.nan),
    "ignore_eos": (np.int8, -1),
    "logprobs": (np.int32, -1),
    "produce": (np.uint8, 0),  # without any, as the job file says
}


class ShardWriter:
    """Tokens go to the file as they come; the rest is small and goes there in finish()."""

    def __init__(
        self, path: Path, tokenizer_sha256: str, vocab_size: int, followup: str, created_by: str
    ) -> None:
        self._vocab_size = vocab_size
        self._file = h5py.File(path, "w")
        self._file.attrs.update(
            {
                "schema": SCHEMA,
                "tokenizer_sha256": tokenizer_sha256,
                "created_by": created_by,
                "followup": followup,
            }
        )
        self._file.attrs["vocab_size"] = np.int64(vocab_size)
        self._tokens = self._file.create_dataset(
            "tokens", (0,), np.int32, maxshape=(None,), chunks=(CHUNK_TOKENS,)
        )
        self._pending: list[np.ndarray] = []
        self._pending_tokens = 0
        self._turn_offsets = [0]
        self._request_offsets = [0]
        self._names: list[str] = []
        self._of_turns = {key: OptionalColumn(key, *kind) for key, kind in TURN_OPTIONS.items()}
        self._biases = LogitBiasRows()
        self._spans = SpanRows()
        self._continuations = ContinuationRows()
        self._of_requests = [
            OptionalColumn("arrival_s", np.float64, 0.0),  # there from the start
            OptionalColumn("endpoint", TEXT, ""),
            OptionalColumn("dimensions", np.int32, 0),  # of an embedding; 0: all
            OptionalColumn("encoding_format", TEXT, ""),
            OptionalColumn("book", TEXT, ""),
            OptionalColumn("title", TEXT, ""),
            OptionalColumn("part", np.int32, (1, 1)),
            OptionalColumn("span", np.int64, (0, 0)),
            OptionalColumn("book_tokens", np.int64, 0),
            OptionalColumn("document_title", TEXT, ""),
        ]
        self._positions = PositionRows()
        self._choices: list[tuple[int, int]] = []
        self._custom_ids: list[str] = []

    @property
    def num_requests(self) -> int:
        return len(self._names)

    def add(self, request: PackedRequest) -> None:
        for number, turn in enumerate(request.turns):
            tokens = np.asarray(turn.tokens, dtype=np.int64)
            if tokens.size == 0:
                raise UserError(
                    f"{request.origin}: turn {number + 1} of '{request.name}' has no tokens"
                )
            if tokens.max() >= self._vocab_size:
                raise UserError(
                    f"{request.origin}: the tokenizer gives {tokens.max()}, but config.json says that the "
                    f"vocabulary has {self._vocab_size} entries. They do not belong together"
                )
            self._pending.append(tokens.astype(np.int32))
            self._pending_tokens += tokens.size
            self._turn_offsets.append(self._turn_offsets[-1] + tokens.size)
            for key, column in self._of_turns.items():
                value = getattr(turn.sampling, key)
                if key == "stop" and value is not None:
                    value = json.dumps(value, ensure_ascii=False)
                column.append(value)
            self._biases.append(turn.sampling.logit_bias or ())
            self._spans.append(turn.sampling.spans or ())
            self._continuations.append(turn.continuations)
        self._request_offsets.append(len(self._turn_offsets) - 1)
        self._names.append(request.name)
        self._custom_ids.append(request.custom_id or request.name)
        self._choices.append((request.choice, request.num_choices))
        for column, value in zip(self._of_requests, _values_of(request)):
            column.append(value)
        self._positions.append(request.positions)
        if self._pending_tokens >= CHUNK_TOKENS:
            self._write_pending()

    def finish(self) -> None:
        self._write_pending()
        self._file.create_dataset("turn_offsets", data=np.array(self._turn_offsets, dtype=np.int64))
        self._file.create_dataset(
            "request_offsets", data=np.array(self._request_offsets, dtype=np.int64)
        )
        write_texts(self._file, "request_id", self._names)
        for column in (*self._of_turns.values(), *self._of_requests):
            column.write(self._file)
        self._biases.write(self._file)
        self._spans.write(self._file)
        self._continuations.write(self._file)
        self._positions.write(self._file)
        if any(count > 1 for _, count in self._choices):
            write_texts(self._file, "custom_id", self._custom_ids)
            self._file.create_dataset("choice", data=np.array(self._choices, dtype=np.int32))
        self.close()

    def close(self) -> None:
        self._file.close()

    def _write_pending(self) -> None:
        if self._pending:
            begin = self._tokens.shape[0]
            self._tokens.resize((begin + self._pending_tokens,))
            self._tokens[begin:] = np.concatenate(self._pending)
            self._pending, self._pending_tokens = [], 0


def _values_of(request: PackedRequest) -> tuple[Any, ...]:
    """Of the columns per request, in their order; None where there is nothing to say."""
    first = (
        request.arrival_s,
        request.endpoint or None,
        request.dimensions,
        request.encoding_format or None,
    )
    title = request.document_title or None
    place = request.place
    if place is None or place.book_tokens == 0:  # known to the template alone
        return (*first, None, None, None, None, None, title)
    part, span = (place.part, place.parts), (place.begin, place.end)
    return (*first, place.book, place.title, part, span, place.book_tokens, title)
