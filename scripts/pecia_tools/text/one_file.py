# SPDX-License-Identifier: Apache-2.0
"""All answers of a run in one file: JSONL, CSV or parquet."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from ..model_folder import ModelFolder
from ..runs.prompt_shard import Skipped
from ..runs.requests import Request
from ..runs.results import STATES, Results, Turn
from .answer_table import ANSWER_COLUMNS, AnswerRows, Row, write_csv, write_parquet
from .batch_output import BatchWriter, lines_of


class OneFile:
    """Writes the turns, or in JSONL the lines, that are in one of `states`, and counts the others."""

    def __init__(
        self,
        results: Results,
        model: ModelFolder,
        requests: Sequence[Request],
        states: set[str],
        skipped: Sequence[Skipped] = (),
    ) -> None:
        """`skipped`: what was not packed; in JSONL each has a line beside the failed ones."""
        self._results = results
        self._model = model
        self._requests = requests
        self._states = states
        self._skipped = skipped
        self._counts: Counter[str] = Counter()
        self._unit = "row"

    def write_text(self, file: TextIO, is_jsonl: bool) -> None:
        if not is_jsonl:
            write_csv(file, ANSWER_COLUMNS, self._rows())
            return
        self._unit = "line"
        writer = BatchWriter(self._results, self._model)
        for line in lines_of(self._requests):
            if self._is_wanted(line.state):
                file.write(json.dumps(writer.write(line), ensure_ascii=False) + "\n")
        for skipped in self._skipped:
            if self._is_wanted("failed"):
                file.write(json.dumps(writer.write_skipped(skipped), ensure_ascii=False) + "\n")

    def write_parquet(self, path: Path) -> None:
        write_parquet(path, ANSWER_COLUMNS, self._rows())

    def said(self) -> str:
        """'3 lines written, 2 left out (1 open, 1 partial)'."""
        written = self._counts["written"]
        said = f"{written} {self._unit}{'s' if written != 1 else ''} written"
        left_out = {key: count for key, count in self._counts.items() if key != "written"}
        if left_out:
            said += f", {sum(left_out.values())} left out ({_list(left_out)})"
        return said

    def _rows(self) -> Iterator[Row]:
        return AnswerRows(self._results, self._model).rows(self._turns())

    def _turns(self) -> Iterator[tuple[Request, Turn]]:
        for request in self._requests:
            for turn in request.generating:
                if self._is_wanted(turn.state):
                    yield request, turn

    def _is_wanted(self, state: str) -> bool:
        is_wanted = state in self._states
        self._counts["written" if is_wanted else state] += 1
        return is_wanted


def _list(counts: dict[str, int]) -> str:
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts.get(state))
