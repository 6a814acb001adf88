# SPDX-License-Identifier: Apache-2.0
"""What bench-elastic.sh needs and prints.

elastic_report trace KIND TOKENS                     a Mooncake trace of one kind of requests
elastic_report line ROUND KIND ARRIVALS NAME OUT     a JSON line of the run in OUT
elastic_report rate LINES KIND LOAD                  requests per second that keep DP busy for LOAD of the time
elastic_report table LINES                           tables; a figure is the median of the rounds
"""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..command import UserError, run
from ..runs.hdf5_file import open_hdf5
from .modes import read, show
from .trace import answered

PROGRAM = "elastic-report"
SHORT, LONG, LONGEST = (32, 1024), (2000, 6000), (8000, 12000)  # prompt tokens
ANSWER = (8, 48)
# Parts of the requests, as of services: most are short, and most tokens belong to the others.
KINDS = {"short": (1.0, 0.0), "long": (0.0, 0.8), "mixed": (0.85, 0.1), "zipf": (0.0, 0.0)}
SLACK = 25  # times the latency on idle ranks within which a request counts as served (LoongServe)
ALONE = ("alone-DP", "alone-CP")


def trace(kind: str, tokens: int) -> Iterator[dict[str, int]]:
    """Requests with about so many prompt tokens together; short ones evenly over the logarithm of the length, and
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


def line(numbered: str, kind: str, arrivals: str, name: str, out: Path) -> dict[str, Any]:
    _, facts = answered(out / "report.json")
    with open_hdf5(out / "results.h5") as results:
        ttft_s = results["ttft_s"][:].astype(float)
        latency_s = ttft_s + results["decode_s"][:]
    return {
        "bench": "bench_elastic",
        "round": int(numbered),
        "kind": kind,
        "arrivals": arrivals,
        "mode": name,
        **facts,
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
            goodputs, means, medians, lasts = [], [], [], []
            for round in rounds:
                found = of(kind, "replay", mode, round)
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
                ]
            )
        best = max(rates[mode] for mode in modes if mode != "elastic")
        show(
            f"{kind}: elastic / best static {rates['elastic'] / best:.3f} as a batch",
            ("grid", "tokens/s as a batch", "goodput", "TTFT mean s", "p50 s", "p99 s"),
            rows,
        )


def main(arguments: list[str]) -> int:
    if len(arguments) == 3 and arguments[0] == "trace" and arguments[1] in KINDS:
        for request in trace(arguments[1], int(arguments[2])):
            print(json.dumps(request))
    elif len(arguments) == 6 and arguments[0] == "line":
        _, numbered, kind, arrivals, name, out = arguments
        print(json.dumps(line(numbered, kind, arrivals, name, Path(out))))
    elif len(arguments) == 4 and arguments[0] == "rate":
        print(f"{rate(read(Path(arguments[1])), arguments[2], float(arguments[3])):.4f}")
    elif len(arguments) == 2 and arguments[0] == "table":
        tables(read(Path(arguments[1])))
    else:
        raise UserError(str(__doc__).partition("\n\n")[2])
    return 0


if __name__ == "__main__":
    run(PROGRAM, main)
