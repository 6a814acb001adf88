# SPDX-License-Identifier: Apache-2.0
"""How long prefills of the demo model take with sparse attention by levels, beside a dense ring, Ulysses where the
heads allow it, and levels that drop nothing, which are Ulysses on any number of ranks. Prints seconds, what rank 0
spent in attention and waited for messages, and bytes; a figure is the median of its case. `scripts/bench accuracy`
says what is lost (apps/results/epyc-zen4-2cores.md has the command).
  local  the ranks on this machine
  net    on up to four servers in two racks, made of network namespaces: N Mbit/s for a server, and a quarter of that
         between racks; needs root
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ..command import UserError
from ..gguf import demo_model
from .common import (
    MODEL,
    SERVERS,
    Work,
    bench_parser,
    enter_network,
    needs_root,
    on_this_machine,
    positive,
    show,
)

WAITS = (
    "ring_pass_kv",
    "halo",
    "level_tokens",
    "level_queries",
    "level_outputs",
    "importance_samples",
    "importance_of_heads",
    "row_need_of_heads",
    "all_to_all_heads",
    "all_to_all_rows",
)
HEADS = (
    "prefill",
    "seconds",
    "attention s",
    "waiting for messages s",
    "importance s",
    "MB sent, all ranks",
    "seconds / levels that drop nothing",
)


def case(line: dict[str, Any]) -> str:
    """ "dense ring", "Ulysses", "3 levels × 4, drop 20 %"."""
    if "held_out_errors" in line:
        return ""
    if line["ring"] != "levels":
        return "dense ring" if "CP 1 " not in line["grid"] else "Ulysses"
    parts = f" in {line['pipeline']} parts" if line["pipeline"] > 1 else ""
    if line["levels"] == 1:
        return "1 level: each rank's tokens alone"
    return f"{line['levels']} levels{parts}, drop {100 * line['drop']:.0f} %"


def rows(lines: Sequence[dict[str, Any]]) -> list[list[str]]:
    cases: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if name := case(line):
            cases.setdefault(name, []).append(line)

    def median(of: Sequence[float]) -> float:
        return statistics.median(of)

    def stage(line: dict[str, Any], names: Sequence[str]) -> float:
        return sum(seconds for name, seconds in line["stages_s_of_rank_0"] if name in names)

    seconds = {name: median([one["seconds"]["median"] for one in of]) for name, of in cases.items()}
    exact = [name for name in cases if name.startswith("2 levels, drop 0")]
    if not exact:
        raise UserError("no case with two levels that drop nothing")
    return [
        [
            name,
            f"{seconds[name]:.2f}",
            f"{median([stage(one, ['attention']) for one in of]):.2f}",
            f"{median([stage(one, WAITS) for one in of]):.2f}",
            f"{median([stage(one, ['importance']) for one in of]):.2f}",
            f"{median([one['sent_bytes_of_layers'] for one in of]) / 1e6:.0f}",
            f"{seconds[name] / seconds[exact[0]]:.2f}",
        ]
        for name, of in cases.items()
    ]


def cases(ranks: int) -> list[str]:
    levels = 3 if ranks > 2 else 2  # a server, two racks
    return [
        "--ring pass_kv",
        *([f"--sp {ranks}"] if 9 % ranks == 0 and 3 % ranks == 0 else []),
        "--ring levels --levels 2",
        "--ring levels --levels 2 --pipeline 4",
        "--ring levels --levels 2 --pipeline 4 --drop 13",  # which loses nothing (apps/results/epyc-zen4-2cores.md)
        *(f"--ring levels --levels {levels} --pipeline 4 --drop {drop}" for drop in (0, 20, 50, 80, 95)),
        "--ring levels --levels 1",
    ]


def main(arguments: list[str]) -> int:
    parser = bench_parser("csa", __doc__, "net --ranks 2 --tokens 4096", rounds=1, where=("local", "net"))
    for name, default in (("ranks", 4), ("tokens", 8192), ("mbit", 1000)):
        parser.add_argument(f"--{name}", type=positive, default=default, help="default: %(default)s")
    options = parser.parse_args(arguments)
    ranks, hosts = options.ranks, ""
    if options.where == "net":
        if not 2 <= ranks <= len(SERVERS):
            raise UserError(f"--ranks is {ranks}; net has 2 to 4 servers")
        hosts = ",".join(f"{name}:1" for name in (("n1", "n3") if ranks == 2 else SERVERS[:ranks]))
        needs_root(options.where)
    demo_model.main([str(MODEL)])
    if options.where == "net":
        enter_network(options.where, options.mbit, options.mbit // 4)
    else:
        on_this_machine()
    work = Work(f"csa-{options.where}", options.json)
    work.build("pecia-bench")
    common = ["--model", MODEL, "--compute", "fp32", "--kv-dtype", "fp32", "--tokens", options.tokens]
    common += ["--batch-tokens", options.tokens, "--warmups", 0, "--runs", 1, "--threads", 1]
    for _ in work.rounds(options.rounds):
        for case_of in cases(ranks):
            work.note(case_of)
            words = [*common, *case_of.split()]
            work.keep(work.bench(ranks, "prefill", *words, hosts=hosts, threads=1))
    show(f"prefill of {options.tokens} tokens on {ranks} ranks", HEADS, rows(work.lines))
    return 0
