"""Reads results.h5, schema "pecia.results/1", also while a run is writing it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

# Before HDF5 is loaded: a run holds the file open, and network file systems often refuse locks.
os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")

import h5py
import numpy as np

from .command import UserError

SCHEMA = "pecia.results/1"
STATES = ("open", "partial", "done", "failed")
FINISH_REASONS = (None, "stop", "length", None)
DATASETS = (
    "state",
    "request_id",
    "turn",
    "slot_offsets",
    "tokens",
    "token_logprob",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "finish_reason",
    "error",
)


@dataclass(frozen=True)
class TurnRow:
    """A turn as it stands in the file."""

    request_id: str
    turn: int
    state: str
    slots: int
    tokens: np.ndarray  # int32, the stop token included
    token_logprobs: np.ndarray
    top_tokens: Optional[np.ndarray]  # [tokens, K]
    top_logprobs: Optional[np.ndarray]
    prompt_tokens: int
    cached_tokens: int
    finish_reason: Optional[str]
    error: str


class Results:
    def __init__(self, path: Path) -> None:
        self.path = path / "results.h5" if path.is_dir() else path
        if not self.path.is_file():
            raise UserError(
                f"{self.path}: no such results file. Name a run folder or its results.h5"
            )
        try:
            self._file = h5py.File(self.path, "r")
        except OSError as error:
            raise UserError(f"{self.path}: not a readable HDF5 file ({error})") from error
        schema = _text(self._file.attrs.get("schema", ""))
        if schema != SCHEMA:
            raise UserError(
                f"{self.path}: attribute schema is '{schema}', not '{SCHEMA}'; this is not a results file"
            )
        for name in DATASETS:
            if name not in self._file:
                raise UserError(f"{self.path}: dataset /{name} is missing; the file is damaged")

    def close(self) -> None:
        self._file.close()

    @property
    def num_turns(self) -> int:
        return int(self._file["state"].shape[0])

    @property
    def modified(self) -> int:
        return int(self.path.stat().st_mtime)

    def model_path(self) -> Optional[Path]:
        """The model's folder as the run's report, or else the file's identity, names it."""
        report = self.path.parent / "report.json"
        named: list[Any] = []
        if report.is_file():
            try:
                named.append(json.loads(report.read_text(encoding="utf-8")))
            except json.JSONDecodeError:
                named.append(None)  # being written
        try:
            named.append(json.loads(_text(self._file.attrs.get("identity", "{}"))))
        except json.JSONDecodeError as error:
            raise UserError(f"{self.path}: attribute identity is not JSON ({error})") from error
        for value in named:
            text = _find_model(value)
            if text:
                return Path(text)
        return None

    def attribute(self, name: str) -> str:
        return _text(self._file.attrs.get(name, ""))

    def columns(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Whole datasets of one value per turn, text as the bytes that are in the file."""
        try:
            return {name: self._file[name][:] for name in names}
        except KeyError as error:
            raise UserError(f"{self.path}: {error}; another version of pecia wrote it") from error

    def rows(self) -> Iterator[TurnRow]:
        """All turns in input order. The states are read first: a row is on disk before its state says so."""
        file = self._file
        states = file["state"][:]
        columns = {
            name: file[name][:]
            for name in (
                "request_id",
                "turn",
                "slot_offsets",
                "prompt_tokens",
                "cached_tokens",
                "output_tokens",
                "finish_reason",
                "error",
            )
        }
        for row, state in enumerate(states):
            if state >= len(STATES):
                raise UserError(f"{self.path}: /state[{row}] is {state}; the file is damaged")
            begin, slots_end = (int(o) for o in columns["slot_offsets"][row : row + 2])
            count = int(columns["output_tokens"][row]) if state != 0 else 0
            if not 0 <= count <= slots_end - begin:
                raise UserError(
                    f"{self.path}: /output_tokens[{row}] is {count}, but the turn has "
                    f"{slots_end - begin} slots; the file is damaged"
                )
            written = slice(begin, begin + count)
            yield TurnRow(
                request_id=_text(columns["request_id"][row]),
                turn=int(columns["turn"][row]),
                state=STATES[state],
                slots=slots_end - begin,
                tokens=file["tokens"][written],
                token_logprobs=file["token_logprob"][written],
                top_tokens=file["top_tokens"][written] if "top_tokens" in file else None,
                top_logprobs=file["top_logprobs"][written] if "top_logprobs" in file else None,
                prompt_tokens=int(columns["prompt_tokens"][row]),
                cached_tokens=int(columns["cached_tokens"][row]),
                finish_reason=FINISH_REASONS[columns["finish_reason"][row]] if state == 2 else None,
                error=_text(columns["error"][row]) if state == 3 else "",
            )


def _text(value: Any) -> str:
    return (
        value.rstrip(b"\0").decode("utf-8", errors="replace")
        if isinstance(value, bytes)
        else str(value)
    )


def _find_model(value: Any) -> Optional[str]:
    """{"model": "PATH"} or {"model": {"path": "PATH"}}, at the top or under "job"."""
    if not isinstance(value, dict):
        return None
    model = value.get("model")
    if isinstance(model, dict):
        model = model.get("path")
    return model if isinstance(model, str) else _find_model(value.get("job"))
