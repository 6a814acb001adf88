# SPDX-License-Identifier: Apache-2.0
"""Vectors and scores: in OpenAI's and vLLM's form, and as tables."""

from __future__ import annotations

import base64
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional, TextIO

import numpy as np

from ..command import UserError
from ..runs.requests import Request
from ..runs.results import Results, Turn

VECTOR_COLUMNS = ("id", "turn", "index", "prompt_tokens")
SCORE_COLUMNS = ("id", "turn", "index", "state", "score", "tokens", "error")
ROWS_AT_ONCE = 1024


def embedding_data(results: Results, request: Request, turn: Turn) -> list[dict[str, Any]]:
    """The vectors as OpenAI lists them, cut to the dimensions that the request asked for. What is left of a vector of
    length one gets that length again, as text-embedding-3 does."""
    origin = request.origin
    vectors = results.vectors(turn).astype(np.float32)
    if 0 < origin.dimensions < vectors.shape[1]:
        vectors = vectors[:, : origin.dimensions]
        if results.vectors_have_length_one:
            lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
            vectors = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    is_base64 = origin.encoding_format == "base64"
    return [
        {
            "object": "embedding",
            "embedding": (
                base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
                if is_base64
                else [float(f"{number:.9g}") for number in vector]
            ),
        }
        for vector in vectors
    ]


def score_data(results: Results, request: Request, turn: Turn) -> list[dict[str, Any]]:
    """As vLLM's /v1/score lists them, with the log-probabilities that each score weighs; null: nothing comes before
    the token."""
    logprobs = results.score_logprobs(turn)
    listed = []
    begin = 0
    for index, (score, tokens) in enumerate(_scores(results, request, turn)):
        own = logprobs[begin : begin + tokens]
        begin += tokens
        listed.append(
            {
                "object": "score",
                "index": index,
                "score": score,
                "token_logprobs": [None if np.isnan(one) else float(one) for one in own],
            }
        )
    return listed


def _scores(results: Results, request: Request, turn: Turn) -> Iterator[tuple[float, int]]:
    """Each score, with the number of tokens that it weighs."""
    scores = results.scores(turn)
    lengths = [len(turn.score_tokens)]
    if request.shard is not None:
        lengths = request.shard.continuation_lengths(turn.request, turn.turn) or lengths
    elif len(scores) == len(turn.score_tokens):
        lengths = [1] * len(scores)
    elif len(scores) > 1:
        raise UserError(
            f"{results.path}: which tokens are of which continuation stands in the prompt shard; leave out "
            "--no-prompts"
        )
    yield from zip(map(float, scores), lengths)


def vector_rows(
    requests: Sequence[Request], states: set[str]
) -> Iterator[tuple[Request, Turn, int]]:
    """Each vector of turns in these states."""
    for request in requests:
        for turn in request.turns:
            if turn.vectors and turn.state in states:
                for index in range(len(turn.vectors)):
                    yield request, turn, index


def write_vectors(
    results: Results,
    requests: Sequence[Request],
    states: set[str],
    path: Path,
    index: Optional[TextIO],
) -> int:
    """With `index`, npy: all vectors of turns that are done, [rows, width], and in `index` a CSV of what each row is.
    Without, parquet: the same columns and the vector. Returns the number of rows."""
    done = states & {"done"}
    rows = list(vector_rows(requests, done))
    if not rows:
        raise UserError(f"{results.path}: no turn that is done has vectors")
    if index is None:
        _write_parquet(results, rows, path)
        return len(rows)
    writer = csv.DictWriter(index, VECTOR_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for request, turn, number in rows:
        writer.writerow(_columns(request, turn, number))
    width = results.vectors(rows[0][1]).shape[1]
    dtype = results.vectors(rows[0][1]).dtype
    matrix = np.lib.format.open_memmap(path, "w+", dtype, (len(rows), width))
    for row, (_, turn, number) in enumerate(rows):
        if number == 0:
            matrix[row : row + len(turn.vectors)] = results.vectors(turn)
    matrix.flush()
    return len(rows)


def _columns(request: Request, turn: Turn, index: int) -> dict[str, Any]:
    return {
        "id": request.request_id,
        "turn": turn.turn,
        "index": index,
        "prompt_tokens": turn.prompt_tokens + turn.cached_tokens,
    }


def _write_parquet(results: Results, rows: list[tuple[Request, Turn, int]], path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    first = results.vectors(rows[0][1])
    number = pyarrow.float16() if first.dtype == np.float16 else pyarrow.float32()
    schema = pyarrow.schema(
        [
            ("id", pyarrow.string()),
            ("turn", pyarrow.int32()),
            ("index", pyarrow.int32()),
            ("prompt_tokens", pyarrow.int32()),
            ("vector", pyarrow.list_(number, first.shape[1])),
        ]
    )
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for begin in range(0, len(rows), ROWS_AT_ONCE):
            block = rows[begin : begin + ROWS_AT_ONCE]
            flat = np.concatenate([results.vectors(turn)[i] for _, turn, i in block])
            vectors = pyarrow.FixedSizeListArray.from_arrays(
                pyarrow.array(flat, number), first.shape[1]
            )
            table = [_columns(*row) for row in block]
            columns = [
                pyarrow.array([row[field.name] for row in table], field.type)
                for field in list(schema)[:-1]
            ]
            writer.write_table(pyarrow.Table.from_arrays([*columns, vectors], schema=schema))


def write_scores(
    results: Results, requests: Sequence[Request], states: set[str], file: TextIO
) -> int:
    """A row of CSV for each score. Returns their number."""
    writer = csv.DictWriter(file, SCORE_COLUMNS, lineterminator="\n")
    writer.writeheader()
    count = 0
    for request in requests:
        for turn in request.turns:
            if not turn.scores or turn.state not in states:
                continue
            is_done = turn.state == "done"
            found = list(_scores(results, request, turn)) if is_done else [("", "")]
            for index, (score, tokens) in enumerate(found):
                writer.writerow(
                    {
                        "id": request.request_id,
                        "turn": turn.turn,
                        "index": index,
                        "state": turn.state,
                        "score": score,
                        "tokens": tokens,
                        "error": turn.error,
                    }
                )
                count += 1
    return count
