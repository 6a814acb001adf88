# SPDX-License-Identifier: Apache-2.0
"""Traces of services: when requests came and how long they were, not what they said."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

import numpy as np

from ..command import UserError

BLOCK_TOKENS = 512  # of a Mooncake hash id
KNOWN_COLUMNS = (("ContextTokens", "GeneratedTokens"), ("input_length", "output_length"))


@dataclass(frozen=True)
class TraceRequest:
    origin: str  # file:line, for messages
    input_tokens: int
    output_tokens: int
    arrival_s: Optional[float] = None
    blocks: Sequence[int] = ()  # equal ids are equal tokens, block_tokens each
    block_tokens: int = BLOCK_TOKENS


def read_mooncake(path: Path) -> Iterator[TraceRequest]:
    """JSONL lines of {"timestamp": ms, "input_length", "output_length", "hash_ids"}, as Mooncake publishes them."""
    with path.open(encoding="utf-8") as file:
        for number, text in enumerate(file, start=1):
            where = f"{path}:{number}"
            try:
                line = json.loads(text)
            except json.JSONDecodeError as error:
                raise UserError(f"{where}: not JSON: {error}") from error
            if not isinstance(line, dict):
                raise UserError(f"{where}: not a JSON object")
            request = TraceRequest(
                where,
                count_of(line, "input_length", where),
                count_of(line, "output_length", where),
                milliseconds_of(line, where) / 1000,
                blocks_of(line, where),
            )
            if request.blocks and len(request.blocks) * BLOCK_TOKENS < request.input_tokens:
                raise UserError(
                    f"{where}: {len(request.blocks)} hash_ids of {BLOCK_TOKENS} tokens are less than "
                    f"input_length, {request.input_tokens}"
                )
            yield request


def count_of(line: dict[str, Any], key: str, where: str) -> int:
    value = line.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UserError(f"{where}: {key} is {value!r}; it must be a number of tokens")
    return value


def milliseconds_of(line: dict[str, Any], where: str) -> float:
    value = line.get("timestamp")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UserError(f"{where}: timestamp is {value!r}; it must be a number of milliseconds")
    return value


def blocks_of(line: dict[str, Any], where: str) -> list[int]:
    value = line.get("hash_ids", [])
    if not isinstance(value, list) or not all(type(i) is int and i >= 0 for i in value):
        raise UserError(f"{where}: hash_ids must be a list of numbers from 0")
    return value


def read_lengths(path: Path, columns: Optional[Sequence[str]]) -> Iterator[TraceRequest]:
    """A CSV with a header; `columns` names those of prompt and answer tokens, if they are not known ones."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        header = rows.fieldnames or []
        choices = (tuple(columns),) if columns else KNOWN_COLUMNS
        pair = next((pair for pair in choices if set(pair) <= set(header)), None)
        if pair is None:
            raise UserError(
                f"{path}: has columns {', '.join(header) or 'none'}, but not "
                f"{' nor '.join(' and '.join(pair) for pair in choices)}. Name them with --columns"
            )
        for row in rows:
            where = f"{path}:{rows.line_num}"
            counts = []
            for name in pair:
                text = row[name] or ""
                if not text.isdecimal():
                    raise UserError(f"{where}: {name} is '{text}'; it must be a number of tokens")
                counts.append(int(text))
            prompt_tokens, answer_tokens = counts
            yield TraceRequest(where, prompt_tokens, answer_tokens)


def gamma_arrivals(rate: float, variation: float, count: int, seed: int) -> np.ndarray:
    """Seconds, the first 0; gaps have mean 1/rate and coefficient of variation `variation`, 1 being Poisson."""
    gaps = np.random.default_rng([seed, 2]).gamma(
        1 / variation**2, variation**2 / rate, size=max(count - 1, 0)
    )
    return np.concatenate([np.zeros(min(count, 1)), np.cumsum(gaps)])


def scaled(request: TraceRequest, factor: float, max_tokens: Optional[int]) -> TraceRequest:
    """Lengths and blocks times `factor`, each at least 1; prompt and answer together at most `max_tokens`."""
    inputs, outputs, block = (
        max(1, math.ceil(n * factor))
        for n in (request.input_tokens, request.output_tokens, request.block_tokens)
    )
    if max_tokens is not None:
        outputs = min(outputs, max_tokens - 1)
        inputs = min(inputs, max_tokens - outputs)
    return replace(request, input_tokens=inputs, output_tokens=outputs, block_tokens=block)
