# SPDX-License-Identifier: Apache-2.0
"""trace_report line NAME ARRIVALS REPORT, trace_report table FILE: what bench-trace.sh measured, as a JSON line of a
run's report.json, and as tables of many lines. A figure is the median of its runs.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from ..command import UserError, run
from .modes import read, show

PROGRAM = "trace-report"


def answered(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run's report.json, and what a line says of any run. All its requests were answered."""
    report = json.loads(path.read_text(encoding="utf-8"))
    counts = report["counts"]
    if counts["failed"] > 0 or counts["open"] > 0:
        raise UserError(f"{path}: {counts['failed']} requests failed, {counts['open']} are open")
    return report, {
        "commit": report["build"]["commit"],
        "cpu": report["machine"]["cpu"],
        "requests": counts["done"],
        "prompt_tokens": counts["prompt_tokens"],
        "output_tokens": counts["output_tokens"],
        "seconds": report["seconds"],
    }


def line(name: str, arrivals: str, path: Path) -> dict[str, Any]:
    report, facts = answered(path)
    return {
        "bench": "bench_trace",
        "mode": name,
        "arrivals": arrivals,
        **facts,
        "ttft_s": report["ttft_s"],
        "tbt_s": report["tbt_s"],
        "exposed_communication": report["exposed_communication"],
    }


def tables(lines: list[dict[str, Any]]) -> None:
    modes = list(dict.fromkeys(one["mode"] for one in lines))

    def of(mode: str, arrivals: str) -> list[dict[str, Any]]:
        return [one for one in lines if (one["mode"], one["arrivals"]) == (mode, arrivals)]

    def ms(found: list[dict[str, Any]], what: str, percentile: str) -> str:
        return f"{1e3 * statistics.median(one[what][percentile] for one in found):.0f}"

    latencies = []
    for mode in modes:
        found = of(mode, "replay")
        cells = [ms(found, what, p) for what in ("ttft_s", "tbt_s") for p in ("p50", "p90", "p99")]
        latencies.append([mode, *cells])
    show(
        "Latency as requests come",
        ("mode", *(f"{what} {p} ms" for what in ("TTFT", "TBT") for p in ("p50", "p90", "p99"))),
        latencies,
    )
    throughputs = []
    for mode in modes:
        rates = [
            (one["prompt_tokens"] + one["output_tokens"]) / one["seconds"]
            for one in of(mode, "ignore")
        ]
        each = ", ".join(f"{rate:.0f}" for rate in rates)
        throughputs.append([mode, f"{statistics.median(rates):.0f}", each])
    show(
        "Throughput of the same requests as a batch",
        ("mode", "prompt and output tokens/s", "each round"),
        throughputs,
    )


def main(arguments: list[str]) -> int:
    if len(arguments) == 4 and arguments[0] == "line":
        print(json.dumps(line(arguments[1], arguments[2], Path(arguments[3]))))
    elif len(arguments) == 2 and arguments[0] == "table":
        tables(read(Path(arguments[1])))
    else:
        raise UserError(
            "usage: trace_report line NAME ARRIVALS REPORT | trace_report table FILE"
        )
    return 0


if __name__ == "__main__":
    run(PROGRAM, main)
