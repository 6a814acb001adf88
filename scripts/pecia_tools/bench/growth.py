# SPDX-License-Identifier: Apache-2.0
"""How the cost of a prompt grows. With its length: seconds against a·T + b·T², whose b / a the FLOPs
say, and memory against weights and keys and values. With the ranks that share this machine's cores: processor time
per token.

Builds what it times, runs every case in turn, round after round, and prints tables. Other work on the machine moves the
figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ..gguf import demo_model
from .common import (
    MODEL,
    Line,
    Work,
    lengths,
    load,
    model_parser,
    on_this_machine,
    positive,
    show,
)

WARM_UP = 512  # tokens of the prompt that comes first
MIB = 1 << 20
Case = tuple[Callable[[Work, argparse.Namespace, int], Line], int]


class Fit:
    """seconds(T) = a · T + b · T² with the least squares of the relative differences."""

    def __init__(self, tokens: Sequence[int], seconds: Sequence[float]) -> None:
        count, time = np.array(tokens, dtype=float), np.array(seconds)
        shares = np.stack([count / time, count**2 / time], axis=1)
        (self.a, self.b), *_ = np.linalg.lstsq(shares, np.ones(len(time)), rcond=None)
        self.differences = shares @ (self.a, self.b) - 1

    def __call__(self, tokens: int) -> float:
        return self.a * tokens + self.b * tokens**2


def weight_bytes(model: Path) -> int:
    return sum(file.stat().st_size for file in model.glob("*.safetensors"))


def kv_bytes(model: Path, tokens: int) -> int:
    """Of keys and values of 16 bits."""
    config = json.loads((model / "config.json").read_text("utf-8"))
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    kv_heads = config.get("num_key_value_heads") or heads
    return tokens * config["num_hidden_layers"] * 2 * kv_heads * head_dim * 2


def bench(work: Work, options: argparse.Namespace, ranks: int, threads: int, *words: object) -> Line:
    """The last line of one process, or of one mpirun."""
    common = ("--model", options.model, "--compute", options.compute, "--threads", threads)
    return work.bench(ranks, "prefill", *common, *words)[-1]


def of_length(work: Work, options: argparse.Namespace, tokens: int) -> Line:
    words = ["--tokens", f"{WARM_UP},{tokens}", "--runs", 1, "--warmups", 0]
    line = bench(work, options, 1, options.threads, *words)
    return {"what": "length", **line}


def of_ranks(work: Work, options: argparse.Namespace, ranks: int) -> Line:
    line = bench(work, options, ranks, 1, "--tokens", options.rank_tokens, "--runs", 1)
    return {"what": "ranks", **line}


def median(lines: Sequence[Line], figure: str) -> float:
    return statistics.median(
        line[figure]["median"] if isinstance(line[figure], dict) else line[figure] for line in lines
    )


def by(lines: Sequence[Line], what: str, key: str) -> dict[int, list[Line]]:
    found: dict[int, list[Line]] = {}
    for line in lines:
        if line["what"] == what:
            found.setdefault(line[key], []).append(line)
    return dict(sorted(found.items()))


def lengths_table(lines: Sequence[Line], model: Path) -> None:
    groups = by(lines, "length", "tokens")
    if not groups:
        return
    seconds = [median(group, "seconds") for group in groups.values()]
    flops = Fit(list(groups), [group[0]["flops"] for group in groups.values()])
    fit = Fit(list(groups), seconds)
    rows = []
    for (tokens, group), time, difference in zip(groups.items(), seconds, fit.differences):
        rest = median(group, "max_rss_bytes") - weight_bytes(model) - kv_bytes(model, tokens)
        rows.append(
            [
                str(tokens),
                f"{time:.2f}",
                f"{tokens / time:.0f}",
                f"{100 * median(group, 'share_of_floor'):.0f} %",
                f"{fit(tokens):.2f} ({100 * difference:+.1f} %)",
                f"{kv_bytes(model, tokens) / MIB:.0f}",
                f"{rest / MIB:.0f}",
            ]
        )
    heads = ("tokens", "s", "tokens/s", "share of the floor", "a·T + b·T²", "KV MiB", "rest MiB")
    show("By length", heads, rows)
    if len(groups) > 2:
        print(
            f"\nb / a is {fit.b / fit.a:.3e} of the seconds and {flops.b / flops.a:.3e} of the FLOPs: a FLOP of "
            f"attention costs {fit.b / fit.a / (flops.b / flops.a):.2f} times one of the other products."
        )
    print("Rest: peak resident memory less the weights' file and keys and values.")


def ranks_table(lines: Sequence[Line]) -> None:
    groups = by(lines, "ranks", "ranks")
    if not groups:
        return
    costs = {ranks: median(group, "cpu_s_per_token") for ranks, group in groups.items()}
    first = next(iter(costs.values()))
    rows = [
        [
            str(ranks),
            f"{1e6 * cost:.0f}",
            f"{100 * (cost / first - 1):+.1f} %",
            f"{median(groups[ranks], 'tokens_per_s'):.0f}",
            f"{100 * median(groups[ranks], 'exposed_comm_share'):.1f} %",
        ]
        for ranks, cost in costs.items()
    ]
    heads = ("ranks of 1 thread", "CPU µs per token", "against the first", "tokens/s", "waiting")
    show("By ranks", heads, rows)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = model_parser("growth", __doc__, "--tokens 512,2048 --ranks 1,2")
    add = parser.add_argument
    add(
        "--tokens",
        type=lengths,
        default="2048,4096,8192,16384,32768",
        help="lengths of the prompts (default: %(default)s)",
    )
    add("--ranks", type=lengths, default="1,2,4,8", help="default: %(default)s")
    add(
        "--rank-tokens",
        type=positive,
        default=4096,
        help="length of the prompts for ranks (default: %(default)s)",
    )
    add("--compute", choices=("auto", "fp32", "bf16"), default="auto", help="as pecia run has it")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    work = Work("growth", options.json)
    if options.model == MODEL:
        demo_model.main([str(MODEL)])
    work.build("pecia-bench")
    on_this_machine()
    cases: list[Case] = [(of_length, tokens) for tokens in options.tokens]
    cases += [(of_ranks, ranks) for ranks in options.ranks]
    for number in work.rounds(options.rounds):
        for measure, value in cases:
            what = "tokens" if measure is of_length else "ranks"
            work.note(f"round {number} of {options.rounds}, {load()}: {value} {what}")
            work.keep([measure(work, options, value)], round=number)
    lengths_table(work.lines, options.model)
    ranks_table(work.lines)
    return 0
