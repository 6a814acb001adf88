# SPDX-License-Identifier: Apache-2.0
"""What `reproducible: layout` costs. Whole runs of one rank of two threads and of CP 2, SP 2 and TP 2 with one thread
each, with it and without, in turn.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from ..command import UserError
from .common import Line, Work, bench_model, bench_parser, on_this_machine, show

PROMPTS = {"prefill": (2048, 1, 4), "decode": (512, 64, 1)}  # lengths, and how many: little else than that phase
MODES = {"1 rank × 2 threads": 1, "CP 2": 2, "SP 2": 2, "TP 2": 2}  # ranks


def line(mode: str, phase: str, reproducible: str, path: Path) -> Line:
    report = json.loads(path.read_text(encoding="utf-8"))
    if report["counts"]["failed"] > 0 or report["counts"]["open"] > 0:
        raise UserError(f"{path}: the run has failed or open requests")
    return {
        "bench": "bench_layout",
        "mode": mode,
        "phase": phase,
        "reproducible": reproducible,
        "commit": report["build"]["commit"],
        "cpu": report["machine"]["cpu"],
        "tokens_per_s": report["phases"][phase]["tokens_per_s"],
    }


def tables(lines: Sequence[Line]) -> None:
    """What `reproducible: layout` leaves of the speed, round by round."""
    rows = []
    for mode, phase in dict.fromkeys((line["mode"], line["phase"]) for line in lines):
        rates = {
            reproducible: [
                line["tokens_per_s"]
                for line in lines
                if (line["mode"], line["phase"], line["reproducible"]) == (mode, phase, reproducible)
            ]
            for reproducible in ("run", "layout")
        }
        ratios = [b / a for a, b in zip(rates["run"], rates["layout"], strict=True)]
        medians = [f"{statistics.median(found):.1f}" for found in rates.values()]
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        rows.append([mode, phase, *medians, f"{statistics.median(ratios):.2f}", each])
    show(
        "The layout-invariant mode",
        ("mode", "phase", "run tok/s", "layout tok/s", "ratio", "each round"),
        rows,
    )


def main(arguments: list[str]) -> int:
    options = bench_parser("layout", __doc__, "--rounds 2").parse_args(arguments)
    work = Work("layout", options.json)
    work.build("pecia")
    model = bench_model("bench-111m", layers=24, ffn=2048)
    shards = {
        phase: work.prompts(phase, "--lengths", *of[:2], "--poisson", 1, "--requests", of[2], "--vocab", 32768)
        for phase, of in PROMPTS.items()
    }
    job = work.job(
        "job",
        model={"path": str(model)},
        input=[],
        output="out",
        generation={"ignore_eos": True},
        report={"progress": "off"},
    )
    on_this_machine()
    for _ in work.rounds(options.rounds):
        for mode, ranks in MODES.items():
            grid = [f"parallel.{mode[:2].lower()}=2"] if ranks > 1 else []
            for phase, shard in shards.items():
                for reproducible in ("run", "layout"):
                    work.note(f"{mode}, {phase}, reproducible: {reproducible}")
                    settings = [f"input=[{shard}]", f"output={work.folder / 'out'}", *grid]
                    settings.append(f"reproducible={reproducible}")
                    report = work.run(ranks, job, settings, threads=2 // ranks)
                    work.keep([line(mode, phase, reproducible, report)])
    tables(work.lines)
    return 0
