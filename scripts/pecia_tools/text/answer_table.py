# SPDX-License-Identifier: Apache-2.0
"""Turns as rows: index.csv of a folder of texts, and tables of answers as CSV or parquet."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Optional, TextIO, Union

from ..command import printable
from ..model_folder import ModelFolder
from ..runs.answers import answer_text
from ..runs.citations import Citation, citation_of
from ..runs.questions import Questions
from ..runs.requests import Request
from ..runs.results import Results, Turn

Row = dict[str, Union[str, int, None]]  # None: not known, or not yet

NUMBERS = ("part", "parts", "turn", "prompt_tokens", "output_tokens", "truncated_tokens")
INDEX_COLUMNS = (
    "id",
    "book",
    "title",
    "part",
    "parts",
    "turn",
    "state",
    "prompt_tokens",
    "output_tokens",
    "finish_reason",
    "truncated_tokens",
    "error",
    *Citation().fields(),
)
ANSWER_COLUMNS = (*INDEX_COLUMNS, "question", "answer")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
NUMBER = re.compile(r"[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?")
ROWS_AT_ONCE = 1024


def index_rows(requests: Sequence[Request]) -> Iterator[Row]:
    """A row per turn that generates, whatever its state."""
    for request in requests:
        citation = citation_of(request)
        for turn in request.generating:
            yield _row(request, turn, citation)


class AnswerRows:
    """Rows with the question and the answer as it was generated."""

    def __init__(self, results: Results, model: ModelFolder) -> None:
        self._results = results
        self._tokenizer = model.tokenizer
        self._questions = Questions(model)

    def rows(self, turns: Iterable[tuple[Request, Turn]]) -> Iterator[Row]:
        for request, turn in turns:
            row = _row(request, turn, citation_of(request))
            row["question"] = self._questions.of_turn(request, turn) or None
            row["answer"] = None
            if turn.state in ("done", "partial"):
                row["answer"] = answer_text(self._tokenizer, turn, self._results.tokens(turn))
            yield row


def write_csv(file: TextIO, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """What is not known is empty. No cell is a formula to a spreadsheet, nor a command to a terminal."""
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _cell(row[key]) for key in columns})


def _cell(value: object) -> object:
    """A text that begins as a formula, and is no number, gets an apostrophe before it, as OWASP advises."""
    if not isinstance(value, str):
        return "" if value is None else value
    is_formula = value.startswith(FORMULA) and not NUMBER.fullmatch(value)
    return ("'" if is_formula else "") + printable(value.replace("\r\n", "\n"))


def write_parquet(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """What is not known is null."""
    import pyarrow
    from pyarrow import parquet

    schema = pyarrow.schema(
        [(name, pyarrow.int32() if name in NUMBERS else pyarrow.string()) for name in columns]
    )
    remaining = iter(rows)
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while block := list(islice(remaining, ROWS_AT_ONCE)):
            writer.write_table(pyarrow.Table.from_pylist(block, schema))


def _row(request: Request, turn: Turn, citation: Citation) -> Row:
    origin = request.origin
    is_begun = turn.state != "open"
    truncated: Optional[int] = request.truncated_before_answer(turn) if is_begun else None
    return {
        "id": request.request_id,
        "book": origin.book or None,
        "title": origin.title or None,
        "part": origin.part or None,
        "parts": origin.num_parts or None,
        "turn": turn.turn,
        "state": turn.state,
        "prompt_tokens": turn.prompt_tokens + turn.cached_tokens if is_begun else None,
        "output_tokens": turn.output_tokens if is_begun else None,
        "finish_reason": turn.finish_reason,
        "truncated_tokens": truncated,
        "error": turn.error or None,
        **{name: value or None for name, value in citation.fields().items()},
    }
