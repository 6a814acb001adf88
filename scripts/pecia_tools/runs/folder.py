# SPDX-License-Identifier: Apache-2.0
"""What a run folder holds, as plain values: report.json, results.h5, progress.json. The trace: read_trace."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np

from ..command import UserError
from ..model_folder import read_json
from .hdf5_file import open_hdf5
from .results import Results

REPORT_SCHEMA = "pecia.report/1"
OPEN, PARTIAL, DONE, FAILED = range(4)
LENGTH = 2  # of finish_reason
COLUMNS = (
    "request_id",
    "shard",
    "request",
    "turn",
    "slot_offsets",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "finish_reason",
    "error",
    "queue_s",
    "ttft_s",
    "decode_s",
)


@dataclass(frozen=True)
class Phase:
    """Prefill or decode."""

    seconds: float
    tokens: int
    tokens_per_s: Optional[float]
    share_of_peak: Optional[float]


@dataclass(frozen=True)
class Percentiles:
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class Rank:
    rank: int
    host: str
    rack: str
    compute_s: float
    exposed_communication_s: float
    idle_s: float
    peak_rss_bytes: int


@dataclass(frozen=True)
class Stage:
    """All spans of one name, all ranks together."""

    name: str
    kind: str
    count: int
    seconds: float
    bytes: int


@dataclass(frozen=True)
class Link:
    """What one kind of group sent over one level of links, all ranks together."""

    pattern: str
    level: str
    messages: int
    bytes: int


@dataclass(frozen=True)
class Report:
    """report.json: of the last start of the run that came to its end."""

    build: dict[str, Any]
    job: dict[str, Any]
    machine: dict[str, Any]
    grid: dict[str, int]
    modes: dict[str, Any]
    counts: dict[str, int]
    seconds: float
    phases: dict[str, Phase]
    ttft_s: Optional[Percentiles]
    tbt_s: Optional[Percentiles]
    exposed_communication: Optional[float]
    stages: list[Stage]
    ranks: list[Rank]
    links: list[Link]
    predicted: Optional[dict[str, Any]]
    errors: list[str]
    document: dict[str, Any]  # all of it, as it stands in the file


@dataclass(frozen=True)
class Turns:
    """results.h5, one entry per turn in input order. Of a turn that is open only the first five mean anything."""

    state: np.ndarray
    request_id: np.ndarray  # bytes
    turn: np.ndarray
    first: np.ndarray  # row of the same request's first turn
    slots: np.ndarray
    prompt_tokens: np.ndarray
    cached_tokens: np.ndarray
    output_tokens: np.ndarray
    truncated_tokens: np.ndarray  # of the prompt, left out by limits.over_length
    finish_reason: np.ndarray
    error: np.ndarray  # bytes
    queue_s: np.ndarray
    ttft_s: np.ndarray
    decode_s: np.ndarray

    def __len__(self) -> int:
        return len(self.state)

    def number(self, state: int) -> int:
        return int(np.count_nonzero(self.state == state))

    @property
    def answered(self) -> np.ndarray:
        """Done turns that have at least one token, as a mask."""
        return (self.state == DONE) & (self.output_tokens > 0)

    @property
    def truncated(self) -> np.ndarray:
        """Done turns whose prompt was cut to fit, as a mask."""
        return (self.state == DONE) & (self.truncated_tokens > 0)

    @property
    def cut_by_length(self) -> np.ndarray:
        """Answers that ended without a stop, as a mask."""
        return self.answered & (self.finish_reason == LENGTH)

    @property
    def cut_by_model_length(self) -> np.ndarray:
        """Those of them that the model's length ended, before max_new_tokens."""
        return self.cut_by_length & (self.output_tokens < self.slots)

    @property
    def prompt_length(self) -> np.ndarray:
        """Tokens before the answer, those of earlier turns included."""
        return self.prompt_tokens.astype(np.int64) + self.cached_tokens

    def between_tokens_s(self) -> np.ndarray:
        """Mean time between a turn's tokens; NaN with fewer than two."""
        gaps = np.where(self.output_tokens > 1, self.output_tokens - 1, 1)
        return np.where(self.answered & (self.output_tokens > 1), self.decode_s / gaps, np.nan)


@dataclass(frozen=True)
class RunFolder:
    path: Path
    report: Optional[Report]
    turns: Optional[Turns]
    identity: dict[str, Any]  # of results.h5: model, sampling, input
    followup: Optional[str]  # of the input: chain or fork; None when its shards are gone
    progress: Optional[dict[str, Any]]
    written: float  # when the newest of the files was written, seconds since 1970


def read_run(path: Path) -> RunFolder:
    if not path.is_dir():
        raise UserError(f"{path}: no such folder. Name a run folder, the `output` of its job file")
    names = ("report.json", "results.h5", "progress.json")
    files = [path / name for name in names if (path / name).is_file()]
    if not any(file.name in names[:2] for file in files):
        raise UserError(
            f"{path}: neither report.json nor results.h5 is in this folder. "
            "Name a run folder, the `output` of its job file"
        )
    turns, identity, followup = None, {}, None
    if path / "results.h5" in files:
        results = Results(path)
        turns = _turns(results)
        identity = json.loads(results.attribute("identity") or "{}")
        followup = _followup(json.loads(results.attribute("inputs") or "[]"))
        results.close()
    return RunFolder(
        path=path,
        report=read_report(path / "report.json") if path / "report.json" in files else None,
        turns=turns,
        identity=identity,
        followup=followup,
        progress=read_json(path / "progress.json") if path / "progress.json" in files else None,
        written=max(file.stat().st_mtime for file in files),
    )


def read_report(path: Path) -> Report:
    document = read_json(path)
    if document.get("schema") != REPORT_SCHEMA:
        raise UserError(
            f"{path}: schema is {document.get('schema')!r}, not '{REPORT_SCHEMA}'. "
            "Use the scripts of the version that wrote it"
        )
    try:
        return _report(document)
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}: {error} is missing; another version of pecia wrote it") from error


def _report(document: dict[str, Any]) -> Report:
    def percentiles(key: str) -> Optional[Percentiles]:
        return None if document[key] is None else Percentiles(**document[key])

    def named(cls: Any, value: dict[str, Any]) -> Any:
        return cls(**{name: value[name] for name in cls.__dataclass_fields__})

    # A place is rack:server:device; a rack that is not known is "-".
    racks = [place.split(":")[0] for place in document["topology"]]
    return Report(
        build=document["build"],
        job=document["job"],
        machine=document["machine"],
        grid=document["grid"],
        modes=document["modes"],
        counts=document["counts"],
        seconds=document["seconds"],
        phases={name: named(Phase, value) for name, value in document["phases"].items()},
        ttft_s=percentiles("ttft_s"),
        tbt_s=percentiles("tbt_s"),
        exposed_communication=document["exposed_communication"],
        stages=[named(Stage, value) for value in document["stages"]],
        ranks=[
            named(Rank, {**value, "rack": rack}) for value, rack in zip(document["ranks"], racks)
        ],
        links=[named(Link, value) for value in document["links"]],
        predicted=document["predicted"],
        errors=document["errors"],
        document=document,
    )


def _turns(results: Results) -> Turns:
    # The states first: a row is on disk before its state says so.
    state = results.columns(["state"])["state"]
    columns = results.columns(COLUMNS)
    same = (np.diff(columns["shard"]) == 0) & (np.diff(columns["request"]) == 0)
    begins = np.concatenate(([True], ~same)) if len(state) else np.zeros(0, bool)
    rows = np.arange(len(state))
    truncated = np.zeros(len(state), np.int32)
    if results.has("truncated_tokens"):
        truncated = results.columns(["truncated_tokens"])["truncated_tokens"]
    return Turns(
        state=state,
        first=np.maximum.accumulate(np.where(begins, rows, 0)) if len(state) else rows,
        slots=np.diff(columns["slot_offsets"]),
        truncated_tokens=truncated,
        **{
            name: columns[name]
            for name in COLUMNS
            if name not in ("shard", "request", "slot_offsets")
        },
    )


def _followup(shards: list[str]) -> Optional[str]:
    for shard in shards:
        if Path(shard).is_file():
            with open_hdf5(Path(shard)) as file:
                value = file.attrs.get("followup", "chain")
                return value.decode() if isinstance(value, bytes) else str(value)
    return None
