# SPDX-License-Identifier: Apache-2.0
"""Small run folders, made on the spot."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support import make_results

OPEN, PARTIAL, DONE, FAILED = range(4)


def turn(request_id: str, state: int = DONE, **more: Any) -> dict[str, Any]:
    """Read in 2 s from the beginning on, then 5 tokens, 0.5 s apart."""
    row = {"id": request_id, "state": state, "slots": 8, "prompt": 100}
    if state in (DONE, PARTIAL):
        row.update(tokens=[7] * 5, ttft=2.0, decode=2.0)
    return {**row, **more}


def report_json(ranks: int = 2, **more: Any) -> dict[str, Any]:
    report = {
        "schema": "pecia.report/1",
        "build": {"version": "0.1.0", "commit": "c0ffee", "type": "Release", "compiler": "GNU 12"},
        "job": {
            "model": {"path": "models/tiny"},
            "input": ["prompts.h5"],
            "output": "runs/tiny",
            "report": {"trace": "full"},
        },
        "machine": {"cpu": "Z80", "cores_of_a_rank": 1, "memory_bytes_of_a_host": 2**30},
        "topology": [f"rack{rank // 4}:n{rank // 2}:{rank % 2}" for rank in range(ranks)],
        "grid": {"dp": 1, "cp": ranks, "sp": 1, "tp": 1},
        "modes": {"mode": "ring/pass_kv+pass_q", "weight_bytes": 2**20},
        "counts": {
            "done": 2,
            "failed": 0,
            "partial": 0,
            "open": 0,
            "prompt_tokens": 200,
            "cached_tokens": 0,
            "output_tokens": 10,
        },
        "seconds": 12.5,
        "startup": {"main_unix_s": 1.7e9, "mpi_s": 0.25, "load_weights_s": 0.5,
                    "measure_s": 0.25, "measure_peak_s": 0.125},
        "phases": {
            "prefill": {
                "seconds": 2,
                "tokens": 200,
                "tokens_per_s": 100.0,
                "flops": 1e9,
                "share_of_peak": 0.25,
            },
            "decode": {
                "seconds": 2,
                "tokens": 8,
                "tokens_per_s": 4.0,
                "flops": 1e7,
                "share_of_peak": None,
            },
        },
        "ttft_s": {"p50": 2.0, "p90": 2.0, "p99": 2.0},
        "tbt_s": {"p50": 0.5, "p90": 0.6, "p99": 0.7},
        "exposed_communication": 0.125,
        "peak_flops": 2e9,
        "stages": [
            {"name": name, "kind": kind, "count": 4, "seconds": 1.0, "bytes": size, "flops": 0.0}
            for name, kind, size in (
                ("attention", "compute", 0),
                ("ring_pass_kv", "comm", 600),
                ("all_to_all", "comm", 200),
                ("prefill", "phase", 0),
            )
        ],
        "ranks": [
            {
                "rank": rank,
                "host": f"n{rank // 2}",
                "compute_s": 3.0,
                "exposed_communication_s": 0.5,
                "idle_s": 0.5,
                "peak_rss_bytes": 2**28,
            }
            for rank in range(ranks)
        ],
        "links": [{"pattern": "ring", "level": "server", "messages": 8, "bytes": 1000}],
        "predicted": None,
        "errors": [],
    }
    return {**report, **more}


def span(
    name: str, kind: str, begin_s: float, end_s: float, number: int = 0, **more: int
) -> dict[str, Any]:
    """As lib/base/report/trace.cpp writes it, in microseconds."""
    args = {"pass": number, "bytes": more.get("bytes", 0), "flops": 0.0}
    event = {
        "name": name,
        "cat": kind,
        "ph": "X",
        "ts": 1e6 * begin_s,
        "dur": 1e6 * (end_s - begin_s),
    }
    return {**event, "pid": more.get("replica", 0), "tid": 0, "args": args}


def curve(at_s: float, replica: int, here: int, parked: int, forgotten: int) -> dict[str, Any]:
    """How many sequences are where with memory on demand, as lib/engine/execute/yield_notes.cpp draws it."""
    args = {"in the cache": float(here), "parked": float(parked), "forgotten": float(forgotten)}
    event = {"name": "memory on demand", "cat": "curves", "ph": "C", "ts": 1e6 * at_s}
    return {**event, "pid": replica, "tid": 0, "args": args}


def yielded(kind: str, sequence: int, tokens: int, replica: int = 0) -> dict[str, Any]:
    args = {"pass": 1, "of_pass": 2.0, "sequence": float(sequence), "row": 0.0, "tokens": float(tokens)}
    event = {"name": "yield", "cat": "note", "ph": "i", "s": "t", "ts": 1e6}
    return {**event, "pid": replica, "tid": 0, "args": {**args, "outcome": kind}}


def trace_text(events: Sequence[dict[str, Any]], dropped: int = 0, **footer: Any) -> str:
    """One event per line."""
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    last = json.dumps({"ranks": 1, "dropped_spans": dropped, **footer}, separators=(",", ":"))
    return f'{{"displayTimeUnit":"ms","traceEvents":[\n{lines}\n],"otherData":{last}}}\n'


def write_trace(
    folder: Path, rank: int, events: Sequence[dict[str, Any]], dropped: int = 0
) -> Path:
    """rank-0000N.json.gz, as a run of many ranks leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank-{rank:05}.json.gz"
    end_us = max((e["ts"] + e["dur"] for e in events if e["ph"] == "X"), default=0.0)
    text = trace_text(events, dropped, end_us=end_us)
    path.write_bytes(gzip.compress(text.encode()))
    return path


def write_merged_trace(folder: Path, ranks: Sequence[Sequence[dict[str, Any]]]) -> Path:
    """trace.json.gz, as a run of few ranks leaves it; the events of each rank."""
    folder.mkdir(parents=True, exist_ok=True)
    events = [{**event, "tid": rank} for rank, of in enumerate(ranks) for event in of]
    end_us = max(e["ts"] + e["dur"] for e in events)
    path = folder / "trace.json.gz"
    path.write_bytes(gzip.compress(trace_text(events, ranks=len(ranks), end_us=end_us).encode()))
    return path


def ring_layer(phase: str, layer: int, begin_s: float, number: int) -> list[dict[str, Any]]:
    """Two ring steps in 0.4 s: attention, wait, attention, merge."""
    name = f"{phase}/layer {layer}/"
    return [
        span(name + "attention", "compute", begin_s, begin_s + 0.1, number),
        span(name + "ring_pass_kv", "comm", begin_s + 0.1, begin_s + 0.2, number, bytes=300),
        span(name + "attention", "compute", begin_s + 0.2, begin_s + 0.3, number),
        span(name + "merge", "compute", begin_s + 0.3, begin_s + 0.4, number),
    ]


def full_events() -> list[dict[str, Any]]:
    """A prefill of three layers (0 to 1.2 s), a decode of one (1.2 to 1.6 s), then 0.4 s idle."""
    return [
        *(event for layer in range(3) for event in ring_layer("prefill", layer, 0.4 * layer, 0)),
        span("prefill", "phase", 0, 1.2, 0),
        *ring_layer("decode", 0, 1.2, 1),
        span("decode", "phase", 1.2, 1.6, 1),
        span("wait_for_plan", "idle", 1.6, 2.0, -1),
    ]


def full_trace(folder: Path, ranks: int) -> None:
    for rank in range(ranks):
        write_trace(folder, rank, full_events())


def make_run(
    folder: Path, rows: Sequence[dict[str, Any]], report: dict[str, Any] | None = None
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    make_results(folder / "results.h5", rows)
    if report is not None:
        (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")
    return folder
