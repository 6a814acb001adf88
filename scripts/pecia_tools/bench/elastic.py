# SPDX-License-Identifier: Apache-2.0
"""Elastic teams of two ranks beside every static grid of them (DP, CP, CP with chunked prefill, TP, SP) and beside one
rank that reads and another that answers, with short requests, long ones, both mixed, and lengths of a Zipf law: as a
batch (the longest first), and as they come in bursts (in that order). Prints throughput, times to the first token and
between tokens, and goodput: the part of requests that are answered within 25 times their latency on idle ranks. A
figure is the median of the rounds.
  local  both ranks on this machine
  net    on two servers of one rack, made of network namespaces; needs root
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..runs.hdf5_file import open_hdf5
from .common import Work, bench_model, bench_parser, enter_network, on_this_machine, positive, show
from .trace import VARIATION, answered

SHORT, LONG, LONGEST = (32, 1024), (2000, 6000), (8000, 12000)  # prompt tokens
ANSWER = (8, 48)
# Parts of the requests, as of services: most are short, and most tokens belong to the others.
KINDS = {"short": (1.0, 0.0), "long": (0.0, 0.8), "mixed": (0.85, 0.1), "zipf": (0.0, 0.0)}
SLACK = 25  # times the latency on idle ranks within which a request counts as served (LoongServe)
ALONE = ("alone-DP", "alone-CP")
GRIDS = {
    "DP": "parallel.dp=2",
    "CP": "parallel.cp=2",
    "CP-chunked": "parallel.cp=2 batch.policy=chunked",
    "TP": "parallel.tp=2",
    "SP": "parallel.sp=2 parallel.decode=sp",
    "elastic": "parallel.cp=elastic",
    "elastic-greedy": "parallel.cp=elastic parallel.scheduler=greedy",
    "CP-apart": "parallel.cp=2 parallel.phases=apart",
    "CP-phases": "parallel.cp=2 parallel.phases=auto",
}
ON_IDLE_RANKS = {f"alone-{name}": f"{GRIDS[name]} batch.max_sequences=1" for name in ("DP", "CP")}


def trace(kind: str, tokens: int) -> Iterator[dict[str, int]]:
    """Requests with about `tokens` prompt tokens together; short ones evenly over the logarithm of the length, and
    those of zipf with a share that falls as 1 / length²."""
    draw = random.Random(kind)
    short, long = KINDS[kind]
    while tokens > 0:
        share = draw.random()
        if kind == "zipf":
            length = min(int(SHORT[0] / (1 - share)), LONGEST[1])
        elif share < short:
            length = int(math.exp(draw.uniform(*map(math.log, SHORT))))
        else:
            length = draw.randint(*(LONG if share < short + long else LONGEST))
        tokens -= length
        yield {"timestamp": 0, "input_length": length, "output_length": draw.randint(*ANSWER)}


def line(numbered: int, kind: str, arrivals: str, name: str, out: Path) -> dict[str, Any]:
    report, facts = answered(out / "report.json")
    with open_hdf5(out / "results.h5") as results:
        ttft_s = results["ttft_s"][:].astype(float)
        latency_s = ttft_s + results["decode_s"][:]
    return {
        "bench": "bench_elastic",
        "round": numbered,
        "kind": kind,
        "arrivals": arrivals,
        "mode": name,
        **facts,
        "tbt_s": report["tbt_s"],
        "ttft_s": ttft_s.round(4).tolist(),
        "latency_s": latency_s.round(4).tolist(),
    }


def rate(lines: list[dict[str, Any]], kind: str, load: float) -> float:
    batch = next(one for one in lines if (one["kind"], one["mode"]) == (kind, "DP"))
    return load * batch["requests"] / batch["seconds"]


def tables(lines: list[dict[str, Any]]) -> None:
    modes = [mode for mode in dict.fromkeys(one["mode"] for one in lines) if mode not in ALONE]
    rounds = sorted({one["round"] for one in lines})

    def of(kind: str, arrivals: str, mode: str, round: int) -> dict[str, Any]:
        keys = (kind, arrivals, mode, round)
        return next(
            one
            for one in lines
            if (one["kind"], one["arrivals"], one["mode"], one["round"]) == keys
        )

    for kind in dict.fromkeys(one["kind"] for one in lines):
        rows = []
        rates: dict[str, float] = {}
        for mode in modes:
            batch = [of(kind, "ignore", mode, round) for round in rounds]
            rates[mode] = statistics.median(
                (one["prompt_tokens"] + one["output_tokens"]) / one["seconds"] for one in batch
            )
            goodputs, means, medians, lasts, gaps = [], [], [], [], []
            for round in rounds:
                found = of(kind, "replay", mode, round)
                gaps.append(1e3 * found["tbt_s"]["p99"])
                alone = np.minimum.reduce(
                    [of(kind, "ignore", name, round)["latency_s"] for name in ALONE]
                )
                goodputs.append(float(np.mean(np.array(found["latency_s"]) <= SLACK * alone)))
                ttft = np.array(found["ttft_s"])
                means.append(float(ttft.mean()))
                medians.append(float(np.median(ttft)))
                lasts.append(float(np.quantile(ttft, 0.99)))
            rows.append(
                [
                    mode,
                    f"{rates[mode]:.0f}",
                    f"{statistics.median(goodputs):.3f}",
                    *(f"{statistics.median(each):.2f}" for each in (means, medians, lasts)),
                    f"{statistics.median(gaps):.0f}",
                ]
            )
        best = max(rates[mode] for mode in modes if not mode.startswith("elastic"))
        elastic = f": elastic / best static {rates['elastic'] / best:.3f} as a batch" if "elastic" in rates else ""
        show(
            f"{kind}{elastic}",
            ("grid", "tokens/s as a batch", "goodput", "TTFT mean s", "p50 s", "p99 s", "TBT p99 ms"),
            rows,
        )


class Elastic:
    def __init__(self, options: argparse.Namespace, work: Work, hosts: str) -> None:
        self.options, self.work, self.hosts = options, work, hosts
        model = bench_model("bench-17m", hidden=384, heads=6, kv_heads=6, head_dim=64, ffn=1024, layers=8, vocab=8192)
        self.job = work.job(
            "job",
            model={"path": str(model)},
            input=[],
            output="out",
            generation={"ignore_eos": True},
            report={"progress": "lines"},
        )

    def shard(self, kind: str, rate: float) -> Path:
        """The same requests, at a rate per second."""
        path = self.work.folder / f"{kind}.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in trace(kind, self.options.tokens)), encoding="utf-8")
        return self.work.prompts(kind, path, "--gamma", rate, VARIATION, "--vocab", 8192)

    def all(self, number: int, kind: str, rate: float, arrivals: str, grids: dict[str, str]) -> None:
        shard = self.shard(kind, rate)
        order = "fcfs" if arrivals == "replay" else "longest_first"
        for name, grid in grids.items():
            self.work.note(f"round {number}, {kind}, arrivals {arrivals}, {name}")
            output = self.work.folder / f"{kind}-{name}-{arrivals}-{number}"
            settings = [f"input=[{shard}]", f"output={output}", f"batch.arrivals={arrivals}", f"batch.order={order}"]
            # Each rank has a core.
            self.work.run(2, self.job, [*settings, *grid.split()], hosts=self.hosts, threads=1)
            self.work.keep([line(number, kind, arrivals, name, output)])


def main(arguments: list[str]) -> int:
    parser = bench_parser("elastic", __doc__, "local --tokens 10000", rounds=1, where=("local", "net"))
    add = parser.add_argument
    add("--tokens", type=positive, default=40000, help="prompt tokens of each kind (default: %(default)s)")
    add(
        "--load",
        type=float,
        default=0.8,
        help="requests come at a rate that would keep DP busy for this part of the time, with gaps of coefficient of "
        "variation 3 (default: %(default)s)",
    )
    add(
        "--grids",
        type=lambda text: text.split(","),
        default=list(GRIDS),
        help=f"some of {', '.join(GRIDS)}, with DP (default: all)",
    )
    add("--mbit", type=positive, default=1000, help="speed of the servers' links (default: %(default)s)")
    options = parser.parse_args(arguments)
    if unknown := set(options.grids) - set(GRIDS):
        parser.error(f"--grids {','.join(unknown)}: there are {', '.join(GRIDS)}")
    if "DP" not in options.grids:
        parser.error("--grids without DP, whose rate as a batch is the measure of the rate of arrivals")
    grids = {name: GRIDS[name] for name in options.grids}
    hosts = ""
    if options.where == "net":
        enter_network(options.where, options.mbit, options.mbit)
        hosts = "n1,n2"
    else:
        on_this_machine()
    work = Work(f"elastic-{options.where}", options.json)
    work.build("pecia")
    elastic = Elastic(options, work, hosts)
    for number in work.rounds(options.rounds):
        for kind in KINDS:
            elastic.all(number, kind, 1000, "ignore", grids | ON_IDLE_RANKS)
            elastic.all(number, kind, round(rate(work.lines, kind, options.load), 4), "replay", grids)
    tables(work.lines)
    return 0
