# SPDX-License-Identifier: Apache-2.0
"""What a run with `parallel: {dp: auto, cp: auto, sp: auto, tp: auto}` chooses, beside all that it could
have chosen. Mixed batches run in every legal layout of the ranks, by turns; the times are those of the passes, without
a run's start.

Prints what was foreseen of each layout and what it took, and how much longer than the fastest one the chosen one and
the rule's took. Other work on the machine moves the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path

from ..gguf import demo_model
from .common import BIN, MODEL, Line, Work, lengths, model_parser, show
from .foresight import BATCHES, describe, launched, write_batch
from .foresight import WORK as PARENT

WORK = PARENT.parent / "bench-auto"
OPEN = {"dp": "auto", "cp": "auto", "sp": "auto", "tp": "auto"}


def write_job(model: Path, batch: str, parallel: Line) -> Path:
    job = WORK / "batch.yaml"
    values: Line = {
        "model": {"path": str(model.resolve())},
        "input": [str(WORK / "batch.h5")],
        "output": str(WORK / "batch.run"),
        "generation": {"ignore_eos": True},
        "parallel": parallel,
        "report": {"trace": "off", "progress": "off"},
    }
    job.write_text(json.dumps(values), encoding="utf-8")  # JSON is YAML
    return job


def layouts(model: Path, batch: str, ranks: int) -> list[Line]:
    """Every legal layout, in the words of a job."""
    found: list[Line] = []
    for dp in (each for each in range(1, ranks + 1) if ranks % each == 0):
        if dp == ranks:
            found.append({"dp": dp, "cp": 1, "sp": 1, "tp": 1})
            continue
        job = write_job(model, batch, {**OPEN, "dp": dp})
        said = json.loads(
            launched(1, BIN / "pecia", "plan", job, "--modes", "--ranks", ranks, "--json")
        )
        degrees = ("cp", "sp", "tp", "ep", "prefill", "decode")
        legal = [mode for mode in said["modes"] if mode["legal"]]
        found += [{"dp": dp, **{key: mode[key] for key in degrees}} for mode in legal]
        found.append({"dp": dp, "cp": "elastic", "sp": 1, "tp": 1})
    return found


def run_in(model: Path, batch: str, ranks: int, parallel: Line) -> Line:
    """The report of a run, with the seconds of its passes."""
    launched(ranks, BIN / "pecia", "run", write_job(model, batch, parallel), "--fresh")
    report: Line = json.loads((WORK / "batch.run" / "report.json").read_text())
    startup = report["startup"].items()
    begun = sum(value for key, value in startup if key.endswith("_s") and "unix" not in key)
    report["passes_s"] = report["seconds"] - (begun - report["startup"]["mpi_s"])
    return report


def name_of(grid: Line, mode: str) -> str:
    keys = ("dp", "cp", "sp", "tp", "ep")
    degrees = " × ".join(f"{key} {grid[key]}" for key in keys if grid.get(key, 1) != 1)
    return f"{degrees or 'one rank'}, {mode}"


def compare(options: argparse.Namespace, ranks: int, batch: str) -> list[Line]:
    threads = max(1, options.threads // ranks)
    config = json.loads((options.model / "config.json").read_text())
    write_batch(WORK / "batch.h5", BATCHES[batch], config["vocab_size"])
    chosen = run_in(options.model, batch, ranks, OPEN)["modes"]["expected"]
    expected = {
        name_of(plan, plan["mode"]): plan["expected_s"]
        for plan in [*chosen["alternatives"], chosen["by_rule"], chosen["chosen"]]
    }
    common = {"model": options.model.name, "ranks": ranks, "threads": threads, "batch": batch}
    found = []
    for parallel in layouts(options.model, batch, ranks):
        report = run_in(options.model, batch, ranks, parallel)
        name = name_of(report["grid"], report["modes"]["mode"])
        line = {"layout": name, "expected_s": expected.get(name), "seconds": report["passes_s"]}
        for key in ("chosen", "by_rule"):
            line[key] = name == name_of(chosen[key], chosen[key]["mode"])
        found.append({**common, **line})
    return found


def table(lines: list[Line]) -> None:
    rows, ratios = [], []
    cases = {(line["model"], line["ranks"], line["batch"]) for line in lines}
    for case in sorted(cases):
        of_case = [line for line in lines if (line["model"], line["ranks"], line["batch"]) == case]
        names = list(dict.fromkeys(line["layout"] for line in of_case))
        taken = {}
        for name in names:
            rounds = [line for line in of_case if line["layout"] == name]
            taken[name] = statistics.median(line["seconds"] for line in rounds)
            foreseen = [line["expected_s"] for line in rounds if line["expected_s"]]
            marks = [key for key in ("chosen", "by_rule") if any(line[key] for line in rounds)]
            rows.append(
                [
                    *map(str, case),
                    name,
                    f"{statistics.median(foreseen):.2f}" if foreseen else "slower",
                    f"{taken[name]:.2f}",
                    " and ".join(marks).replace("_", " "),
                ]
            )
        best = min(taken.values())
        for key in ("chosen", "by_rule"):
            of_key = [taken[line["layout"]] / best for line in of_case if line[key]]
            ratios.append((key, statistics.median(of_key)))
    heads = ("model", "ranks", "batch", "layout", "foreseen s", "s", "")
    show("Passes of batches in every layout", heads, rows)
    for key, words in (("chosen", "what was chosen"), ("by_rule", "the rule's layout")):
        times = [ratio for each, ratio in ratios if each == key]
        print(
            f"\nAgainst the fastest layout, {words} took {statistics.median(times):.2f} × as long "
            f"in the median, {max(times):.2f} × at most."
        )


def main(arguments: list[str]) -> int:
    parser = model_parser("auto", __doc__, "--ranks 2,4 --batches 'all sizes'")
    parser.add_argument("--ranks", type=lengths, default="2", help="default: %(default)s")
    parser.add_argument(
        "--batches",
        type=lambda text: text.split(","),
        default=list(BATCHES),
        help=f"default: all, {', '.join(BATCHES)}",
    )
    options = parser.parse_args(arguments)
    for name in options.batches:
        if name not in BATCHES:
            parser.error(f"{name!r} is no batch; the batches are {', '.join(BATCHES)}")
    work = Work("auto", options.json, fresh=False)
    PARENT.mkdir(parents=True, exist_ok=True)
    if options.model == MODEL:
        demo_model.main([str(MODEL)])
    work.build("pecia")
    for ranks in options.ranks:
        describe(ranks, max(1, options.threads // ranks))  # and keeps it, for the runs
    for number in range(1, options.rounds + 1):
        for ranks in options.ranks:
            os.environ["OMP_NUM_THREADS"] = str(max(1, options.threads // ranks))
            for batch in options.batches:
                work.note(f"round {number} of {options.rounds}, {ranks} ranks, {batch}")
                work.keep(compare(options, ranks, batch), round=number)
    table(work.lines)
    return 0
