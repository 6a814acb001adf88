"""What the report shows of trace/: shares of time binned over the run, and one layer's spans on all ranks.

Files of a full trace may have millions of lines each, so they are read in pieces, several files at once, and only sums
and that one layer are kept."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import numpy as np

from .command import UserError, note

KINDS = ("compute", "comm", "idle")
PHASES = ("prefill", "mixed", "decode")
BINS = 240
PIECE_BYTES = 1 << 24
LONG_BYTES = 1 << 28  # takes several seconds
FOOTER_BYTES = 4096
SPAN = re.compile(
    rb'\{"name":"([^"]*)","cat":"(compute|comm|idle|phase)","ph":"X","ts":([^,]+),"dur":([^,]+),'
    rb'"pid":(\d+),"tid":\d+,"args":\{"pass":(-?\d+),"bytes":(\d+),'
)
LAYER = re.compile(rb"(?:^|/)layer (\d+)/")


@dataclass(frozen=True)
class LayerSpan:
    rank: int
    name: str  # of the op, without phase and layer
    kind: str
    begin_s: float  # on the run's clock
    end_s: float
    bytes: int


@dataclass(frozen=True)
class Layer:
    """Every span of one layer in one pass, on the ranks of one replica."""

    phase: str
    layer: int
    number: int  # of the pass
    replica: int
    spans: list[LayerSpan]


@dataclass(frozen=True)
class Trace:
    ranks: list[int]
    end_s: float
    kinds: np.ndarray  # [ranks, KINDS, bins], shares of a bin's time; all 0 in a summary
    phases: np.ndarray  # [ranks, PHASES, bins]
    layer: Optional[Layer]  # None in a summary
    dropped: int  # spans and notes that did not fit

    @property
    def is_full(self) -> bool:
        return bool(np.any(self.kinds > 0))


@dataclass(frozen=True)
class _Spans:
    """A piece of one rank's spans, as columns."""

    name: list[bytes]
    kind: np.ndarray  # of bytes
    begin_us: np.ndarray
    end_us: np.ndarray
    replica: np.ndarray
    number: np.ndarray
    bytes: np.ndarray


@dataclass(frozen=True)
class _Wanted:
    number: int
    layer: int


def read_trace(folder: Path, num_ranks: Optional[int]) -> Optional[Trace]:
    """None without trace files. Files of ranks from `num_ranks` on are left by an earlier start on more ranks."""
    files = {int(path.stem[5:]): path for path in sorted(folder.glob("rank-*.json"))}
    files = {rank: path for rank, path in files.items() if num_ranks is None or rank < num_ranks}
    if not files:
        return None
    ends, dropped = zip(*(_footer(path) for path in files.values()))
    first = next(iter(files))
    chosen = _choose_layer(files[first])
    wanted = chosen[0] if chosen else None
    edges_us = np.linspace(0, max(*ends, 1.0), BINS + 1)
    jobs = [(path, edges_us, wanted) for path in files.values()]
    size = sum(path.stat().st_size for path in files.values())
    if size > LONG_BYTES:
        note("pecia-report", f"reading {size / 1e6:.0f} MB of traces")
    if size > 4 * PIECE_BYTES:
        with ProcessPoolExecutor(min(len(files), os.cpu_count() or 1)) as pool:
            scans = list(pool.map(_scan, *zip(*jobs)))
    else:
        scans = [_scan(*job) for job in jobs]
    layer = None
    if chosen:
        wanted, phase, replica = chosen
        spans = [
            LayerSpan(rank, *span)
            for rank, scan in zip(files, scans)
            for of, span in scan[2]
            if of == replica
        ]
        layer = Layer(phase, wanted.layer, wanted.number, replica, spans)
    return Trace(
        ranks=list(files),
        end_s=edges_us[-1] / 1e6,
        kinds=np.stack([scan[0] for scan in scans]),
        phases=np.stack([scan[1] for scan in scans]),
        layer=layer,
        dropped=sum(dropped),
    )


def _pieces(path: Path) -> Iterator[_Spans]:
    with open(path, "rb") as file:
        while lines := file.readlines(PIECE_BYTES):
            found = SPAN.findall(b"".join(lines))
            if not found:
                continue
            name, kind, begin, length, replica, number, moved = zip(*found)
            begin_us = np.array(begin, dtype=np.float64)
            yield _Spans(
                name=list(name),
                kind=np.array(kind),
                begin_us=begin_us,
                end_us=begin_us + np.array(length, dtype=np.float64),
                replica=np.array(replica, dtype=np.int64),
                number=np.array(number, dtype=np.int64),
                bytes=np.array(moved, dtype=np.int64),
            )


def _footer(path: Path) -> tuple[float, int]:
    """(end of the last span in microseconds, dropped spans). Spans stand in the order of their ends."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        file.seek(max(size - FOOTER_BYTES, 0))
        tail = file.read()
    footer = re.search(rb'^\],"otherData":\{"ranks":1,"dropped_spans":(\d+)\}\}$', tail, re.M)
    if not footer:
        raise UserError(
            f"{path}: is cut short, or no trace of one rank. Move it away to have the report without it"
        )
    spans = SPAN.findall(tail)
    if not spans:  # notes are behind them, or nothing is there
        spans = [
            (0, 0, piece.begin_us[-1], piece.end_us[-1] - piece.begin_us[-1])
            for piece in _pieces(path)
        ]
    end = float(spans[-1][2]) + float(spans[-1][3]) if spans else 0.0
    return end, int(footer[1])


def _choose_layer(path: Path) -> Optional[tuple[_Wanted, str, int]]:
    """The middle layer of the longest pass that has prompts in it (else of the longest one), as one rank saw it: what
    to look for, the phase's name and the replica."""
    longest: dict[str, tuple[float, int, int]] = {}
    for piece in _pieces(path):
        for i in np.flatnonzero(piece.kind == b"phase"):
            phase = piece.name[i].rsplit(b"/", 1)[-1].decode()
            if phase in PHASES and piece.number[i] >= 0:
                found = (
                    piece.end_us[i] - piece.begin_us[i],
                    int(piece.number[i]),
                    int(piece.replica[i]),
                )
                longest[phase] = max(found, longest.get(phase, found))
    phase = next((phase for phase in PHASES if phase in longest), None)
    if phase is None:
        return None
    _, number, replica = longest[phase]
    layers = {
        int(found[1])
        for piece in _pieces(path)
        for i in np.flatnonzero(piece.number == number)
        if (found := LAYER.search(piece.name[i]))
    }
    return (_Wanted(number, sorted(layers)[len(layers) // 2]), phase, replica) if layers else None


def _scan(path: Path, edges_us: np.ndarray, wanted: Optional[_Wanted]) -> tuple:
    """(shares by kind, shares by phase, (replica, fields of LayerSpan) of the wanted layer) of one rank."""
    kinds = np.zeros((len(KINDS), len(edges_us) - 1))
    phases = np.zeros((len(PHASES), len(edges_us) - 1))
    spans = []
    for piece in _pieces(path):
        for row, kind in enumerate(KINDS):
            of = piece.kind == kind.encode()
            kinds[row] += _covered(piece.begin_us[of], piece.end_us[of], edges_us)
        groups = np.flatnonzero(piece.kind == b"phase")
        for row, phase in enumerate(PHASES):
            of = [i for i in groups if piece.name[i].rsplit(b"/", 1)[-1] == phase.encode()]
            phases[row] += _covered(piece.begin_us[of], piece.end_us[of], edges_us)
        if wanted:
            mark = b"layer %d/" % wanted.layer
            for i in np.flatnonzero((piece.number == wanted.number) & (piece.kind != b"phase")):
                before, found, name = piece.name[i].rpartition(mark)
                if found and (not before or before.endswith(b"/")):
                    times = (piece.begin_us[i] / 1e6, piece.end_us[i] / 1e6)
                    fields = (
                        name.decode(),
                        piece.kind[i].decode(),
                        *times,
                        int(piece.bytes[i]),
                    )
                    spans.append((int(piece.replica[i]), fields))
    width = edges_us[1]
    return kinds / width, phases / width, spans


def _covered(begin: Sequence[float], end: Sequence[float], edges: np.ndarray) -> np.ndarray:
    """How much of each bin spans cover that do not overlap one another; bins are equally wide."""
    begin, end = np.clip(begin, 0, edges[-1]), np.clip(end, 0, edges[-1])
    bins = len(edges) - 1
    low = np.minimum((begin / edges[1]).astype(np.int64), bins - 1)
    high = np.minimum((end / edges[1]).astype(np.int64), bins - 1)
    inside = low == high
    covered = np.zeros(bins)
    np.add.at(covered, low[inside], (end - begin)[inside])
    for i in np.flatnonzero(~inside):
        covered[low[i]] += edges[low[i] + 1] - begin[i]
        covered[low[i] + 1 : high[i]] += edges[1]
        covered[high[i]] += end[i] - edges[high[i]]
    return covered
