# SPDX-License-Identifier: Apache-2.0
"""What the start of a run with very many requests takes: seconds by phase, and memory of rank 0.

Makes a tiny model and shards of tiny prompts. Each case is a first start, which is stopped when its first lines say
that it begins, and the start that continues it. Cases: prompts that have nothing in common, and prompts that begin with
one of a thousand instructions. Prints a table. Other work on the machine moves the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import model
from .common import (
    BIN,
    SHAPE_TINY,
    Line,
    Work,
    bench_parser,
    lengths,
    load,
    mpirun,
    on_this_machine,
    positive,
    show,
    write_prompts,
)
from .launched_run import launched

VOCAB = SHAPE_TINY["vocab"]
FIRST_TOKEN = 3
INSTRUCTIONS = 1000
INSTRUCTION_TOKENS = 16
CASES = ("unlike", "alike")
DRAINED = 75
MIB = 1 << 20


def write_shard(path: Path, case: str, requests: int, prompt: int) -> None:
    """One turn of `prompt` tokens each. In the case "alike" an instruction is its first part."""
    draw = np.random.default_rng(1)
    tokens = draw.integers(FIRST_TOKEN, VOCAB, size=(requests, prompt), dtype=np.int32)
    if case == "alike":
        shared = min(INSTRUCTION_TOKENS, prompt - 1)
        kinds = draw.integers(FIRST_TOKEN, VOCAB, size=(INSTRUCTIONS, shared), dtype=np.int32)
        tokens[:, :shared] = kinds[draw.integers(0, INSTRUCTIONS, size=requests)]
    write_prompts(path, tokens.ravel(), [prompt] * requests)


def start(job: Path, ranks: int, log: Path) -> dict[str, Any]:
    """One start, stopped when it begins its work; its report, with what the launch took."""
    command = [*map(str, mpirun(ranks)), str(BIN / "pecia"), "run", str(job)]
    with launched(command, log) as begun:
        begun.seconds_to_words(r" requests, ", time.monotonic())
        for process in begun.ranks():
            os.kill(process, signal.SIGUSR1)
        begun.end(DRAINED)
    report = json.loads((job.parent / "run" / "report.json").read_text(encoding="utf-8"))
    startup = report["startup"]
    startup["launch_s"] = startup.pop("main_unix_s") - begun.begun_unix_s
    return report


def measured(work: Work, options: argparse.Namespace, case: str, ranks: int) -> list[Line]:
    """The first start of a run and the one that continues it."""
    folder = work.folder / "run"
    shutil.rmtree(folder, ignore_errors=True)
    job = work.job(
        "job",
        model={"path": str(work.folder / "model")},
        input=[str(work.folder / f"{case}.h5")],
        output=str(folder),
        parallel={"dp": ranks},
        generation={"max_new_tokens": options.answer, "ignore_eos": True},
        report={"progress": "lines"},
    )
    lines = []
    for which in ("first", "next"):
        work.note(f"{case}, {ranks} ranks, {which} start, {load()}")
        report = start(job, ranks, work.folder / f"{case}-{ranks}-{which}.log")
        lines.append(
            {
                "bench": "bench-start",
                "case": case,
                "start": which,
                "ranks": ranks,
                "requests": options.requests,
                "prompt": options.prompt,
                "commit": report["build"]["commit"],
                "cpu": report["machine"]["cpu"],
                "startup": report["startup"],
                "start_s": sum(report["startup"].values()),
                "rss_bytes": report["ranks"][0]["peak_rss_bytes"],
                "results_bytes": (folder / "results.h5").stat().st_blocks * 512,
            }
        )
    return lines


def table(lines: Sequence[Line]) -> None:
    phases = list(dict.fromkeys(phase for line in lines for phase in line["startup"]))
    heads = (
        "prompts",
        "ranks",
        "start",
        "s",
        "rank 0 MiB",
        *(p.removesuffix("_s") for p in phases),
    )
    rows = [
        [
            line["case"],
            str(line["ranks"]),
            line["start"],
            f"{line['start_s']:.1f}",
            f"{line['rss_bytes'] / MIB:.0f}",
            *(f"{line['startup'].get(phase, 0):.1f}" for phase in phases),
        ]
        for line in lines
    ]
    first = lines[0]
    show(f"{first['requests']} requests of {first['prompt']} tokens", heads, rows)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = bench_parser("start", __doc__, "--requests 100000 --ranks 1", rounds=0)
    add = parser.add_argument
    add("--requests", type=positive, default=1_000_000, help="default: %(default)s")
    add("--prompt", type=positive, default=24, help="tokens of a prompt (default: %(default)s)")
    add(
        "--answer", type=positive, default=8, help="most tokens of an answer (default: %(default)s)"
    )
    add("--ranks", type=lengths, default="1,2", help="replicas of one rank (default: %(default)s)")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    work = Work("start", options.json)
    on_this_machine()
    os.environ["PECIA_NO_CACHE"] = "1"  # what other runs measured is not there
    work.build("pecia")
    model.main([str(work.folder / "model"), *(f"--{key}={value}" for key, value in SHAPE_TINY.items())])
    for case in CASES:
        write_shard(work.folder / f"{case}.h5", case, options.requests, options.prompt)
        for ranks in options.ranks:
            work.keep(measured(work, options, case, ranks))
    table(work.lines)
    return 0
