# SPDX-License-Identifier: Apache-2.0
"""Plays a bursty stream of requests to two ranks that share them in turn by SP alone, by SP with shift, by TP alone, as
two replicas (DP), by CP and as elastic teams, and prints latencies; and the same requests as a batch, for throughput. A
figure is the median of its runs.
  local  both ranks on this machine
  net    on two servers of one rack, made of network namespaces, with a link of 1000 Mbit/s each; needs root
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from ..command import UserError
from .common import Work, bench_model, bench_parser, enter_network, on_this_machine, positive, show

LENGTHS = ("--lengths", 300, 60)
VARIATION = 3  # of the gaps between requests
GRIDS = {
    "SP": "sp=2 decode=sp",
    "SP+shift": "sp=2 decode=shift",
    "TP": "tp=2",
    "DP": "dp=2",
    "CP": "cp=2",
    "elastic": "cp=elastic",
}


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
    parser = bench_parser("trace", __doc__, "local --requests 20", rounds=2, where=("local", "net"))
    parser.add_argument(
        "--trace",
        type=Path,
        help="what make-trace-prompts reads, for its lengths, times 0.4 (default: prompts of 300, answers of 60)",
    )
    parser.add_argument("--requests", type=positive, default=60, help="default: %(default)s")
    parser.add_argument(
        "--rate", type=float, default=1, help="requests per second, in bursts (gaps of coefficient of variation 3)"
    )
    options = parser.parse_args(arguments)
    hosts = ""
    if options.where == "net":
        enter_network(options.where, 1000, 1000)
        hosts = "n1,n2"
    else:
        on_this_machine()
    work = Work(f"trace-{options.where}", options.json)
    work.build("pecia")
    model = bench_model("bench-111m", layers=24, ffn=2048)
    source = (options.trace.resolve(), "--scale-lengths", 0.4) if options.trace else LENGTHS
    arrivals_of = ("--gamma", options.rate, VARIATION, "--requests", options.requests)
    job = work.job(
        "job",
        model={"path": str(model)},
        input=[str(work.prompts("prompts", *source, *arrivals_of, "--vocab", 32768))],
        output="out",
        generation={"ignore_eos": True},
        batch={"order": "fcfs"},
        report={"progress": "lines"},
    )
    for number in work.rounds(options.rounds):
        for arrivals in ("replay", "ignore"):
            for name, grid in GRIDS.items():
                work.note(f"round {number}, arrivals {arrivals}, {name}")
                settings = [f"output={work.folder / f'{name}-{arrivals}-{number}'}", f"batch.arrivals={arrivals}"]
                settings += [f"parallel.{setting}" for setting in grid.split()]
                report = work.run(2, job, settings, hosts=hosts, threads=1)  # each rank has a core
                work.keep([line(name, arrivals, report)])
    tables(work.lines)
    return 0
