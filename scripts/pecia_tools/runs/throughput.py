# SPDX-License-Identifier: Apache-2.0
"""Tokens per second over a run, from the times of its turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

import numpy as np

from .folder import DONE, FAILED, PARTIAL, RunFolder, Turns

BINS = 120


@dataclass(frozen=True)
class Throughput:
    edges_s: np.ndarray  # [bins + 1]
    prefill: np.ndarray  # tokens per second, [bins]
    decode: np.ndarray


def why_unknown(run: RunFolder) -> Optional[str]:
    """Why turns cannot be put on one time axis, if they cannot."""
    turns = run.turns
    if turns is None:
        return "The folder has no results.h5, which holds the times of each turn."
    if not np.any(_timed(turns)):
        return "No turn has been answered yet."
    if run.report is not None:
        if run.report.job.get("batch", {}).get("arrivals") == "replay":
            return "Requests arrived over time (batch.arrivals: replay); results.h5 has no arrival times."
        counts = run.report.counts
        finished = turns.number(DONE) + turns.number(FAILED)
        if counts["done"] + counts["failed"] < finished:
            return (
                f"{finished - counts['done'] - counts['failed']} of {finished} turns were finished by another start of "
                "this run; each start counts time from its own beginning."
            )
    if np.any(turns.turn > 0) and followup(run) is None:
        return (
            "Requests have several turns, and the prompt shards that say how they follow are gone."
        )
    return None


def followup(run: RunFolder) -> Optional[str]:
    """How turns of one request follow one another; None when nothing says so."""
    turns = run.turns
    if run.followup is None and turns is not None and not np.any(turns.slots[turns.first[turns.turn > 0]]):
        return "fork"  # a document that was read and not answered
    return run.followup


def starts_s(turns: Turns, followup: Optional[str]) -> np.ndarray:
    """When each turn's prefill began, on the run's clock. A turn waits in the queue from the moment the one before it
    ends (chain), or the shared first one is read (fork)."""
    starts = turns.queue_s.astype(np.float64)
    for row in np.flatnonzero(turns.turn > 0):
        if followup == "fork":
            ready = starts[turns.first[row]] + turns.ttft_s[turns.first[row]]
        else:
            ready = starts[row - 1] + turns.ttft_s[row - 1] + turns.decode_s[row - 1]
        starts[row] += ready
    return starts


def throughput(turns: Turns, followup: Optional[str], bins: int = BINS) -> Throughput:
    """Spreads a turn's prompt evenly from its first pass to its first token, and its output from there to its end."""
    timed = _timed(turns)
    begin = starts_s(turns, followup)[timed]
    first = begin + turns.ttft_s[timed]
    end = first + turns.decode_s[timed]
    edges = np.linspace(0, max(float(end.max()), 1e-6), bins + 1)
    width = edges[1]
    output = np.maximum(turns.output_tokens[timed].astype(np.int64) - 1, 0)
    return Throughput(
        edges,
        np.diff(_done_by(edges, begin, first, turns.prompt_tokens[timed])) / width,
        np.diff(_done_by(edges, first, end, output)) / width,
    )


def _timed(turns: Turns) -> np.ndarray:
    return np.isin(turns.state, (DONE, PARTIAL)) & (turns.ttft_s > 0)


def _done_by(
    edges: np.ndarray, begin: np.ndarray, end: np.ndarray, tokens: np.ndarray
) -> np.ndarray:
    length = np.maximum(end - begin, 1e-9)
    return np.array([np.sum(tokens * np.clip((edge - begin) / length, 0, 1)) for edge in edges])
