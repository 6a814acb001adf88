# SPDX-License-Identifier: Apache-2.0
"""The journal of memory on demand in trace/: what left the cache, came back or moved, and how many were where.

It is played from its beginning, so that a journal which contradicts itself is found."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np

from ..command import UserError
from .trace import PIECE_BYTES, open_trace, trace_files

LINE = re.compile(rb'^\{"name":"(?:yield|memory on demand)",.*\}', re.M)
PLACES = ("in the cache", "parked", "forgotten")
BEFORE = {  # where a sequence may be before each kind of yield
    "parked": ("in the cache",),
    "returned": ("parked",),
    "forgotten": ("in the cache", "parked"),
    "read again": ("forgotten",),
    "moved": ("in the cache",),
    "scaled up": ("in the cache",),
    "ended": ("parked", "forgotten"),
}
AFTER = {"parked": "parked", "forgotten": "forgotten"}  # else it is in the cache


@dataclass
class Yields:
    times_s: np.ndarray  # [changes], ascending, on the trace's axis
    sequences: np.ndarray  # [PLACES, changes], of all replicas, from that time on
    kinds: Counter[str]  # how often each happened


def read_yields(folder: Path, num_ranks: Optional[int]) -> Optional[Yields]:
    """None where no replica had memory on demand."""
    events = sorted(_events(folder, num_ranks), key=lambda event: float(event["ts"]))
    curves = [event for event in events if event["name"] == "memory on demand"]
    if not curves:
        return None
    kinds = _replay([event for event in events if event["name"] == "yield"])
    now: dict[int, list[float]] = {}
    changes = np.zeros((len(PLACES), len(curves)))
    for column, event in enumerate(curves):
        now[event["pid"]] = [event["args"][place] for place in PLACES]
        changes[:, column] = np.sum(list(now.values()), axis=0)
    times = np.array([event["ts"] / 1e6 for event in curves])
    return Yields(times, changes, kinds)


def _events(folder: Path, num_ranks: Optional[int]) -> Iterator[dict[str, Any]]:
    for path in trace_files(folder, num_ranks):
        with open_trace(path) as file:
            while lines := file.readlines(PIECE_BYTES):
                for found in LINE.finditer(b"".join(lines)):
                    yield json.loads(found[0])


def _replay(journal: list[dict[str, Any]]) -> Counter[str]:
    places: dict[tuple[int, int], str] = {}
    parked: dict[tuple[int, int], int] = {}
    kinds: Counter[str] = Counter()
    for event in journal:
        args, kind = event["args"], event["args"]["outcome"]
        key = (event["pid"], int(args["sequence"]))
        place = places.get(key, "in the cache")
        fits = place in BEFORE[kind]
        if kind == "returned" and parked.get(key) != int(args["tokens"]):
            fits = False
        if not fits:
            raise UserError(
                f"trace: sequence {key[1]} of replica {key[0]} is {kind} before pass {args['of_pass']:.0f}, "
                f"but it was {place}. Please report this"
            )
        places[key] = AFTER.get(kind, "in the cache")
        if kind == "parked":
            parked[key] = int(args["tokens"])
        kinds[kind] += 1
    return kinds
