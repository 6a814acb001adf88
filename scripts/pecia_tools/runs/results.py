# SPDX-License-Identifier: Apache-2.0
"""Reads results.h5, schema "pecia.results/1", also while a run is writing it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np

from ..command import UserError
from .hdf5_file import open_hdf5

SCHEMA = "pecia.results/1"
STATES = ("open", "partial", "done", "failed")
FINISH_REASONS = (None, "stop", "length", None)
PER_TURN = (
    "state",
    "request_id",
    "shard",
    "request",
    "turn",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "finish_reason",
    "error",
)
OF_LATER_VERSIONS = ("truncated_tokens", "text_bytes", "settings")
DATASETS = (*PER_TURN, "slot_offsets", "tokens", "token_logprob")


@dataclass(frozen=True)
class Turn:
    """A turn as it stands in the file, without its tokens."""

    request_id: str
    shard: int  # of the run's inputs
    request: int  # in that shard
    turn: int
    state: str
    slots: int  # its max_new_tokens
    first_slot: int
    output_tokens: int  # the token that stopped it included
    prompt_tokens: int  # that were run, without the cached ones
    cached_tokens: int
    truncated_tokens: Optional[int]  # None: the run's version did not record them
    text_bytes: int  # of the answer before a stop string; -1: none ended it
    finish_reason: Optional[str]
    error: str
    settings: dict[
        str, Any
    ]  # of the job that concern it alone, by key: "limits.over_length", "generation.stop"
    vectors: range = range(0)  # rows of /vectors
    scores: range = range(0)  # of /scores
    score_tokens: range = range(0)  # of /score_token_logprob

    @property
    def gives_text(self) -> bool:
        return not self.vectors and not self.scores


@dataclass(frozen=True)
class Logprobs:
    """Log-probabilities of a turn's tokens."""

    own: np.ndarray  # [tokens]
    top_tokens: Optional[np.ndarray]  # [tokens, K]; None: `top` is by token id
    top: np.ndarray  # [tokens, K], or the whole vocabulary


class Results:
    def __init__(self, path: Path) -> None:
        self.path = path / "results.h5" if path.is_dir() else path
        if not self.path.exists():
            raise UserError(
                f"{self.path}: no such results file. Name a run folder or its results.h5"
            )
        self._file = open_hdf5(self.path)
        schema = _text(self._file.attrs.get("schema", ""))
        if schema != SCHEMA:
            raise UserError(
                f"{self.path}: attribute schema is '{schema}', not '{SCHEMA}'; this is not a results file"
            )
        for name in DATASETS:
            if name not in self._file:
                raise UserError(f"{self.path}: dataset /{name} is missing; the file is damaged")
        self._tokens = self._file["tokens"]
        self._product_offsets: dict[str, np.ndarray] = {}

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
        named.append(self.identity())
        for value in named:
            text = _find_model(value)
            if text:
                return Path(text)
        return None

    def attribute(self, name: str) -> str:
        return _text(self._file.attrs.get(name, ""))

    def has(self, name: str) -> bool:
        """Whether the file has a dataset that earlier versions did not write."""
        return name in self._file

    def columns(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Whole datasets of one value per turn, text as the bytes that are in the file."""
        try:
            return {name: self._file[name][:] for name in names}
        except KeyError as error:
            raise UserError(f"{self.path}: {error}; another version of pecia wrote it") from error

    def blocks(self, name: str, rows: int) -> Iterable[np.ndarray]:
        """A dataset that may be too large for memory, some rows at a time."""
        if name not in self._file:
            raise UserError(f"{self.path}: dataset /{name} is missing; the run did not ask for it")
        dataset = self._file[name]
        for first in range(0, dataset.shape[0], rows):
            yield dataset[first : first + rows]

    def identity(self) -> dict[str, Any]:
        """What the run calculates, as it wrote it down; empty when the file does not say."""
        try:
            value = json.loads(self.attribute("identity") or "{}")
        except json.JSONDecodeError as error:
            raise UserError(f"{self.path}: attribute identity is not JSON ({error})") from error
        return value if isinstance(value, dict) else {}

    def settings(self) -> list[dict[str, Any]]:
        """What a turn's /settings is an index of; one entry in files of version 0.1, where all turns had the same."""
        try:
            value = json.loads(self.attribute("settings") or "null")
        except json.JSONDecodeError as error:
            raise UserError(f"{self.path}: attribute settings is not JSON ({error})") from error
        if value is None:
            return [{"limits.over_length": self.identity().get("over_length", "")}]
        if isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
            return value
        raise UserError(
            f"{self.path}: attribute settings is no array of objects; the file is damaged"
        )

    def inputs(self) -> list[str]:
        """Paths of the run's prompt shards as the run was given them; empty when the file does not say."""
        try:
            value = json.loads(self.attribute("inputs") or "[]")
        except json.JSONDecodeError as error:
            raise UserError(f"{self.path}: attribute inputs is not JSON ({error})") from error
        return [str(path) for path in value]

    def turns(self) -> list[Turn]:
        """All turns in input order. The states are read first: a row is on disk before its state says so."""
        states = self._file["state"][:]
        offsets = self._file["slot_offsets"][:]
        columns = self.columns(name for name in PER_TURN if name != "state")
        columns.update(self.columns(name for name in OF_LATER_VERSIONS if name in self._file))
        settings = self.settings()
        self._product_offsets = {
            name: self._file[f"{name}_offsets"][:]
            for name in ("vector", "score", "score_token")
            if f"{name}_offsets" in self._file
        }
        return [self._turn(row, states, offsets, columns, settings) for row in range(len(states))]

    def _turn(
        self,
        row: int,
        states: np.ndarray,
        offsets: np.ndarray,
        columns: dict[str, np.ndarray],
        settings: list[dict[str, Any]],
    ) -> Turn:
        state = int(states[row])
        if state >= len(STATES):
            raise UserError(f"{self.path}: /state[{row}] is {state}; the file is damaged")
        begin, end = int(offsets[row]), int(offsets[row + 1])
        count = int(columns["output_tokens"][row]) if state != 0 else 0
        if not 0 <= count <= end - begin:
            raise UserError(
                f"{self.path}: /output_tokens[{row}] is {count}, but the turn has "
                f"{end - begin} slots; the file is damaged"
            )
        truncated, text_bytes = columns.get("truncated_tokens"), columns.get("text_bytes")
        index = int(columns["settings"][row]) if "settings" in columns and state != 0 else 0
        if not 0 <= index < len(settings):
            raise UserError(
                f"{self.path}: /settings[{row}] is {index} of {len(settings)}; the file is damaged"
            )
        return Turn(
            request_id=_text(columns["request_id"][row]),
            shard=int(columns["shard"][row]),
            request=int(columns["request"][row]),
            turn=int(columns["turn"][row]),
            state=STATES[state],
            slots=end - begin,
            first_slot=begin,
            output_tokens=count,
            prompt_tokens=int(columns["prompt_tokens"][row]),
            cached_tokens=int(columns["cached_tokens"][row]),
            truncated_tokens=None if truncated is None else int(truncated[row]),
            # The file is never filled: 0 stands there until a finished row says otherwise.
            text_bytes=int(text_bytes[row]) if text_bytes is not None and state == 2 else -1,
            finish_reason=FINISH_REASONS[columns["finish_reason"][row]] if state == 2 else None,
            error=_text(columns["error"][row]) if state == 3 else "",
            settings=settings[index],
            vectors=self._rows_of("vector", row),
            scores=self._rows_of("score", row),
            score_tokens=self._rows_of("score_token", row),
        )

    def _rows_of(self, name: str, row: int) -> range:
        offsets = self._product_offsets.get(name)
        return range(0) if offsets is None else range(int(offsets[row]), int(offsets[row + 1]))

    def tokens(self, turn: Turn) -> np.ndarray:
        """int32 [output_tokens]."""
        tokens = self._tokens[turn.first_slot : turn.first_slot + turn.output_tokens]
        vocab = int(self._file.attrs.get("vocab_size", 0)) or 1 << 31
        bad = np.flatnonzero((tokens < 0) | (tokens >= vocab))
        if bad.size:
            raise UserError(
                f"{self.path}: /tokens[{turn.first_slot + bad[0]}] is {tokens[bad[0]]}, and the vocabulary has "
                f"{vocab} (request '{turn.request_id}', turn {turn.turn}); the file is damaged"
            )
        return tokens

    def vectors(self, turn: Turn) -> np.ndarray:
        """[vectors, width], in the file's type, of a turn that is done."""
        return self._file["vectors"][turn.vectors.start : turn.vectors.stop]

    def scores(self, turn: Turn) -> np.ndarray:
        """float64 [scores] of a turn that is done."""
        return self._file["scores"][turn.scores.start : turn.scores.stop]

    def score_logprobs(self, turn: Turn) -> np.ndarray:
        """float32 [tokens that the scores weigh], NaN where nothing comes before a token."""
        return self._file["score_token_logprob"][turn.score_tokens.start : turn.score_tokens.stop]

    @property
    def vectors_have_length_one(self) -> bool:
        return bool(self.identity().get("vector", {}).get("normalize", True))

    def logprobs(self, turn: Turn) -> Optional[Logprobs]:
        """None where the run did not ask for any."""
        if "top_logprobs" not in self._file:
            return None
        written = slice(turn.first_slot, turn.first_slot + turn.output_tokens)
        return Logprobs(
            own=self._file["token_logprob"][written],
            top_tokens=self._file["top_tokens"][written] if "top_tokens" in self._file else None,
            top=self._file["top_logprobs"][written],
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
