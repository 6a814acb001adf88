# SPDX-License-Identifier: Apache-2.0
"""Reads prompt shards, schema "pecia.prompts/1", back: what a request was a part of, and what it asked."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np

from ..command import UserError
from ..pack.shard_columns import POSITION_KINDS, POSITIONS, SKIPPED, SKIPPED_COLUMNS
from ..pack.structure import Position
from .hdf5_file import open_hdf5
from .results import Results

REQUIRED = ("tokens", "turn_offsets", "request_offsets", "request_id")
PER_REQUEST = (
    *("book", "title", "part", "span", "book_tokens", "custom_id", "choice", "endpoint"),
    *("document_title", "dimensions", "encoding_format"),
)
CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class Origin:
    """Where a request comes from. A shard may be silent on any of this."""

    book: str = ""
    title: str = ""  # the heading that the part begins under
    part: int = 0  # from 1
    num_parts: int = 0
    span: tuple[int, int] = (0, 0)  # the part's tokens among the book's
    book_tokens: int = 0
    custom_id: str = ""
    choice: int = 0
    num_choices: int = 1
    endpoint: str = ""
    dimensions: int = 0  # of its embedding; 0: all
    encoding_format: str = ""
    document_title: str = ""  # that the document gives itself


@dataclass(frozen=True)
class Skipped:
    """An input that was left out: the id that its answer would have had, where it stands, and why."""

    custom_id: str
    where: str
    message: str


class PromptShard:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_hdf5(path)
        for name in REQUIRED:
            if name not in self._file:
                raise UserError(f"{path}: dataset /{name} is missing; this is not a prompt shard")
        self.is_fork = _text(self._file.attrs.get("followup", "chain")) == "fork"
        self._turn_offsets = self._file["turn_offsets"][:]
        self._request_offsets = self._file["request_offsets"][:]
        self._ids = self._file["request_id"][:]
        self._columns = {name: self._file[name][:] for name in PER_REQUEST if name in self._file}
        self._stop = self._file["stop"][:] if "stop" in self._file else None
        self._continuations = {
            name: self._file[f"continuation_{name}"][:]
            for name in ("offsets", "lengths")
            if f"continuation_{name}" in self._file
        }
        self._positions = {k: v[:] for k, v in self._file.get(POSITIONS, {}).items()}
        for name, column in self._columns.items():
            if len(column) != self.num_requests:
                raise UserError(
                    f"{path}: /{name} has {len(column)} rows for {self.num_requests} requests"
                )

    def skipped(self) -> list[Skipped]:
        """What was left out when the shard was packed."""
        group = self._file.get(SKIPPED, {})
        columns = [[_text(v) for v in group[key][:]] for key in SKIPPED_COLUMNS if key in group]
        if columns and len(columns) != len(SKIPPED_COLUMNS):
            raise UserError(f"{self.path}: /{SKIPPED} lacks a dataset; the file is damaged")
        return [Skipped(*row) for row in zip(*columns)]

    @property
    def num_requests(self) -> int:
        return len(self._ids)

    def request_id(self, request: int) -> str:
        return _text(self._ids[request])

    def origin(self, request: int) -> Origin:
        known: dict[str, Any] = {}
        for name, column in self._columns.items():
            value = column[request]
            if name == "part":
                known["part"], known["num_parts"] = map(int, value)
            elif name == "choice":
                known["choice"], known["num_choices"] = int(value[0]), max(1, int(value[1]))
            elif name == "span":
                known["span"] = (int(value[0]), int(value[1]))
            else:
                is_number = name in ("book_tokens", "dimensions")
                known[name] = int(value) if is_number else _text(value)
        return Origin(**known)

    def positions(self, request: int) -> list[Position]:
        """The chapters and pages that lie in the request's text, with the document's characters."""
        if not self._positions:
            return []
        offsets = self._positions["offsets"]
        return [
            Position(
                POSITION_KINDS[self._positions["kind"][row]],
                int(self._positions["depth"][row]),
                _text(self._positions["label"][row]),
                *map(int, self._positions["characters"][row]),
            )
            for row in range(int(offsets[request]), int(offsets[request + 1]))
        ]

    def num_tokens(self, request: int, turn: int) -> int:
        row = self._row(request, turn)
        return int(self._turn_offsets[row + 1] - self._turn_offsets[row])

    def tokens(self, request: int, turn: int) -> np.ndarray:
        row = self._row(request, turn)
        return self._file["tokens"][int(self._turn_offsets[row]) : int(self._turn_offsets[row + 1])]

    def continuation_lengths(self, request: int, turn: int) -> list[int]:
        """Tokens of each continuation that is scored; empty: the prompt itself is."""
        if len(self._continuations) < 2:
            return []
        row = self._row(request, turn)
        begin, end = self._continuations["offsets"][row : row + 2]
        return [int(length) for length in self._continuations["lengths"][begin:end]]

    def stop(self, request: int, turn: int) -> Optional[list[str]]:
        """The turn's own stop strings; None: the job's."""
        row = self._row(request, turn)
        text = _text(self._stop[row]) if self._stop is not None else ""
        try:
            return [str(string) for string in json.loads(text)] if text else None
        except (json.JSONDecodeError, TypeError) as error:
            raise UserError(
                f"{self.path}: /stop[{row}] is not a JSON array of strings ({text})"
            ) from error

    def _row(self, request: int, turn: int) -> int:
        row = int(self._request_offsets[request]) + turn
        if row >= self._request_offsets[request + 1]:
            raise UserError(
                f"{self.path}: request '{self.request_id(request)}' has no turn {turn}, but the "
                "results have; they do not belong together"
            )
        return row


def open_shards(results: Results, folder: Optional[Path]) -> list[PromptShard]:
    """The shards that the run read, in its order; none when the results do not name them. Their contents are
    compared with what the run wrote down. `folder` is where they lie now; None: where they lay."""
    hashes = results.identity().get("input_sha256") or []
    return [
        PromptShard(_find(name, hashes[i] if i < len(hashes) else None, results.path, folder))
        for i, name in enumerate(results.inputs())
    ]


def _find(name: str, sha256: Optional[str], results: Path, folder: Optional[Path]) -> Path:
    others: list[Path] = []
    for path in _candidates(name, results, folder):
        if not path.is_file():
            continue
        if sha256 is None or _sha256(path) == sha256:
            return path
        others.append(path)
    if others:
        problem = f"{others[0]}: has changed since the run read it"
    elif folder is not None:
        problem = f"{folder / Path(name).name}: not there, but the run read a shard of this name"
    else:
        problem = f"{name}: the prompt shard that the run read is not there"
    raise UserError(
        f"{problem}. Name the folder that holds it with --prompts DIR, or do without questions, books and "
        "choices with --no-prompts"
    )


def _candidates(name: str, results: Path, folder: Optional[Path]) -> list[Path]:
    file = Path(name).name
    if folder is not None:
        found = [folder / name, folder / file]  # an absolute name is itself
    elif Path(name).is_absolute():
        found = [Path(name), results.parent / file]
    else:
        # Relative to where the run was started: here, or somewhere above its output, as a rule.
        above = [parent / name for parent in results.resolve().parents]
        found = [Path(name), *above, results.parent / file]
    return list(dict.fromkeys(path.resolve() for path in found))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _text(value: Any) -> str:
    return (
        value.rstrip(b"\0").decode("utf-8", errors="replace")
        if isinstance(value, bytes)
        else str(value)
    )
