# SPDX-License-Identifier: Apache-2.0
"""What the report shows of trace/: shares of time binned over the run, and one layer's spans on all ranks.

A trace is one file of all ranks, or one of each; packed, or as earlier versions wrote it. The files of a full trace may
have millions of lines each, so they are read in pieces, several files at once, and only sums and that one layer are
kept."""

from __future__ import annotations

import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Optional

import numpy as np

from ..command import UserError, note

KINDS = ("compute", "comm", "idle")
PHASES = ("prefill", "mixed", "decode")
BINS = 240
PIECE_BYTES = 1 << 24
LONG_BYTES = 1 << 28  # takes several seconds
PACKED = 15  # about how much smaller a packed trace is
FOOTER_BYTES = 4096
SPAN = re.compile(
    rb'\{"name":"([^"]*)","cat":"(compute|comm|idle|phase)","ph":"X","ts":([^,]+),"dur":([^,]+),'
    rb'"pid":(\d+),"tid":(\d+),"args":\{"pass":(-?\d+),"bytes":(\d+),'
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
    """A piece of a file's spans, as columns."""

    name: list[bytes]
    kind: np.ndarray  # of bytes
    begin_us: np.ndarray
    end_us: np.ndarray
    replica: np.ndarray
    rank: np.ndarray
    number: np.ndarray
    bytes: np.ndarray


@dataclass(frozen=True)
class _Wanted:
    number: int
    layer: int


def read_trace(folder: Path, num_ranks: Optional[int]) -> Optional[Trace]:
    """None without trace files. Files of ranks from `num_ranks` on are left by an earlier start on more ranks."""
    files = trace_files(folder, num_ranks)
    if not files:
        return None
    footers = [_footer(path) for path in files]
    ends, dropped = zip(*((footer.end_us, footer.dropped) for footer in footers))
    chosen = _choose_layer(files[0])
    wanted = chosen[0] if chosen else None
    edges_us = np.linspace(0, max(*ends, 1.0), BINS + 1)
    jobs = [(path, footer.ranks, edges_us, wanted) for path, footer in zip(files, footers)]
    size = sum(path.stat().st_size * (PACKED if path.suffix == ".gz" else 1) for path in files)
    if size > LONG_BYTES:
        note("pecia-report", f"reading about {size / 1e6:.0f} MB of traces")
    if size > 4 * PIECE_BYTES and len(files) > 1:
        with ProcessPoolExecutor(min(len(files), os.cpu_count() or 1)) as pool:
            scans = list(pool.map(_scan, *zip(*jobs)))
    else:
        scans = [_scan(*job) for job in jobs]
    of_rank = {rank: found for scan in scans for rank, found in scan.items()}
    ranks = sorted(of_rank)
    layer = None
    if chosen:
        wanted, phase, replica = chosen
        spans = [
            LayerSpan(rank, *span)
            for rank in ranks
            for of, span in of_rank[rank].spans
            if of == replica
        ]
        layer = Layer(phase, wanted.layer, wanted.number, replica, spans)
    width = edges_us[1]
    return Trace(
        ranks=ranks,
        end_s=edges_us[-1] / 1e6,
        kinds=np.stack([of_rank[rank].kinds for rank in ranks]) / width,
        phases=np.stack([of_rank[rank].phases for rank in ranks]) / width,
        layer=layer,
        dropped=sum(dropped),
    )


def trace_files(folder: Path, num_ranks: Optional[int]) -> list[Path]:
    """The files that hold every span once. Those of single ranks come first: where they stand beside a file of all,
    that one is of an earlier start, or, in earlier versions, their copy."""
    found: dict[int, Path] = {}
    for pattern in ("rank-*.json", "rank-*.json.gz"):
        for path in sorted(folder.glob(pattern)):
            rank = _rank_of(path)
            if rank is not None and (num_ranks is None or rank < num_ranks):
                found[rank] = path
    if found:
        return [found[rank] for rank in sorted(found)]
    whole = (folder / name for name in ("trace.json.gz", "trace.json"))
    return [path for path in whole if path.is_file()][:1]


def _rank_of(path: Path) -> Optional[int]:
    """Absent: it has all ranks."""
    return int(path.name[5:].split(".")[0]) if path.name.startswith("rank-") else None


def open_trace(path: Path) -> BinaryIO:
    return io.BufferedReader(gzip.open(path)) if path.suffix == ".gz" else open(path, "rb")


def _pieces(path: Path) -> Iterator[_Spans]:
    of_file = _rank_of(path)
    with open_trace(path) as file:
        while lines := file.readlines(PIECE_BYTES):
            found = SPAN.findall(b"".join(lines))
            if not found:
                continue
            name, kind, begin, length, replica, rank, number, moved = zip(*found)
            begin_us = np.array(begin, dtype=np.float64)
            yield _Spans(
                name=list(name),
                kind=np.array(kind),
                begin_us=begin_us,
                end_us=begin_us + np.array(length, dtype=np.float64),
                replica=np.array(replica, dtype=np.int64),
                rank=np.array(rank, dtype=np.int64)
                if of_file is None
                else np.full(len(found), of_file),
                number=np.array(number, dtype=np.int64),
                bytes=np.array(moved, dtype=np.int64),
            )


def _tail(path: Path) -> bytes:
    with open_trace(path) as file:
        if path.suffix != ".gz":
            file.seek(max(path.stat().st_size - FOOTER_BYTES, 0))
            return file.read()
        tail = b""
        try:
            while piece := file.read(PIECE_BYTES):
                tail = (tail + piece)[-FOOTER_BYTES:]
        except (EOFError, gzip.BadGzipFile, zlib.error):
            return b""  # what is missing is what the caller looks for
        return tail


@dataclass(frozen=True)
class _Footer:
    ranks: list[int]
    end_us: float  # of the last span
    dropped: int  # spans and notes


def _footer(path: Path) -> _Footer:
    found = re.search(
        rb'^\],"otherData":\{"ranks":(\d+),"dropped_spans":(\d+)(?:,"end_us":([-+.\de]+))?\}\}$',
        _tail(path),
        re.M,
    )
    if not found:
        raise UserError(
            f"{path}: is cut short, or no trace. Move it away to have the report without it"
        )
    rank = _rank_of(path)
    ranks = list(range(int(found[1]))) if rank is None else [rank]
    return _Footer(ranks, float(found[3] or _last_end_us(path)), int(found[2]))


def _last_end_us(path: Path) -> float:
    """Of files of earlier versions, whose last line does not say."""
    return max((float(piece.end_us.max()) for piece in _pieces(path)), default=0.0)


def _choose_layer(path: Path) -> Optional[tuple[_Wanted, str, int]]:
    """The middle layer of the longest pass that has prompts in it (else of the longest one), as the file's first rank
    saw it: what to look for, the phase's name and the replica."""
    longest: dict[str, tuple[float, int, int]] = {}
    first = None
    for piece in _pieces(path):
        first = piece.rank[0] if first is None else first
        for i in np.flatnonzero((piece.kind == b"phase") & (piece.rank == first)):
            name = piece.name[i].rsplit(b"/", 1)[-1].decode()
            if name in PHASES and piece.number[i] >= 0:
                found = (
                    piece.end_us[i] - piece.begin_us[i],
                    int(piece.number[i]),
                    int(piece.replica[i]),
                )
                longest[name] = max(found, longest.get(name, found))
    phase = next((phase for phase in PHASES if phase in longest), None)
    if phase is None:
        return None
    _, number, replica = longest[phase]
    layers = {
        int(match[1])
        for piece in _pieces(path)
        for i in np.flatnonzero((piece.number == number) & (piece.rank == first))
        if (match := LAYER.search(piece.name[i]))
    }
    return (_Wanted(number, sorted(layers)[len(layers) // 2]), phase, replica) if layers else None


@dataclass
class _OfRank:
    """What _scan finds of a rank."""

    kinds: np.ndarray  # [KINDS, bins], microseconds
    phases: np.ndarray  # [PHASES, bins]
    spans: list[tuple[int, tuple]]  # of the wanted layer: replica, fields of LayerSpan


def _scan(
    path: Path, ranks: Sequence[int], edges_us: np.ndarray, wanted: Optional[_Wanted]
) -> dict[int, _OfRank]:
    """By rank."""
    bins = len(edges_us) - 1
    found = {
        rank: _OfRank(np.zeros((len(KINDS), bins)), np.zeros((len(PHASES), bins)), [])
        for rank in ranks
    }
    for piece in _pieces(path):
        for rank in map(int, np.unique(piece.rank)):
            _add_piece(piece, piece.rank == rank, edges_us, wanted, found[rank])
    return found


def _add_piece(
    piece: _Spans, own: np.ndarray, edges_us: np.ndarray, wanted: Optional[_Wanted], to: _OfRank
) -> None:
    for row, kind in enumerate(KINDS):
        of = own & (piece.kind == kind.encode())
        to.kinds[row] += _covered(piece.begin_us[of], piece.end_us[of], edges_us)
    groups = np.flatnonzero(own & (piece.kind == b"phase"))
    for row, phase in enumerate(PHASES):
        of = [i for i in groups if piece.name[i].rsplit(b"/", 1)[-1] == phase.encode()]
        to.phases[row] += _covered(piece.begin_us[of], piece.end_us[of], edges_us)
    if not wanted:
        return
    mark = b"layer %d/" % wanted.layer
    for i in np.flatnonzero(own & (piece.number == wanted.number) & (piece.kind != b"phase")):
        before, found, name = piece.name[i].rpartition(mark)
        if found and (not before or before.endswith(b"/")):
            times = (piece.begin_us[i] / 1e6, piece.end_us[i] / 1e6)
            fields = (name.decode(), piece.kind[i].decode(), *times, int(piece.bytes[i]))
            to.spans.append((int(piece.replica[i]), fields))


def _covered(begin: np.ndarray, end: np.ndarray, edges: np.ndarray) -> np.ndarray:
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
