# SPDX-License-Identifier: Apache-2.0
"""What the job layer costs and how fast it is, by whole runs of two ranks under mpirun on a model of SmolLM2-135M's
shape, in turn. Needs Linux's /proc and no download.
  overhead  a batch with report.trace: summary and progress lines, and with both off; and its time outside passes
  request   many tiny requests on one rank, less few of them
  start     mpirun until the first token, by phase
  signals   SIGTERM to all ranks until exit code 75; kill -9 and SIGSTOP (limits.silence 3 s) of a rank until it is
            named, and until mpirun's end
  resume    tokens that the run that goes on computes again after each of these
A round takes a minute or two on two cores.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..runs.results import Results
from .common import (
    BIN,
    SHAPE_135M,
    SHAPE_TINY,
    Line,
    Work,
    bench_model,
    bench_parser,
    load,
    mpirun,
    on_this_machine,
)
from .job_report import tables
from .launched_run import LaunchedRun, launched

PROMPTS = {"batch": (49152, 24, 192, 48), "few": (256, 1000, 2, 1), "many": (256, 20000, 2, 1)}
RANKS = 2
SILENCE_S = 3
DRAINED = 75
SEQUENCES = 8  # of the batch at once, so that requests are done all along a run
BATCH = (f"batch.max_sequences={SEQUENCES}",)
ON = ("report.trace=summary", "report.progress=lines")
OFF = ("report.trace=off", "report.progress=off")

def read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def counted(counts: dict[str, int]) -> int:
    """Tokens that a start of a run has computed."""
    return counts["prompt_tokens"] + counts["output_tokens"]


def first_token_s(folder: Path) -> float:
    """From the first pass's begin to the first token of the run."""
    results = Results(folder)
    columns = results.columns(["output_tokens", "ttft_s"])
    results.close()
    return float(np.min(columns["ttft_s"][columns["output_tokens"] > 0]))


def timed(report: dict[str, Any], begun_unix_s: float, ended_unix_s: float) -> Line:
    """Where the time of a whole run of one replica went. `seconds` of a report begin after MPI's start."""
    phases = dict(report["startup"])
    main_unix_s = phases.pop("main_unix_s")
    start_s = sum(phases.values())
    engine_s = report["seconds"] - (start_s - phases["mpi_s"])
    passes_s = sum(report["phases"][name]["seconds"] for name in ("prefill", "decode"))
    return {
        "startup": {"launch_s": main_unix_s - begun_unix_s, **phases},
        "work_s": ended_unix_s - main_unix_s - start_s,
        "passes_s": passes_s,
        "between_passes_s": engine_s - passes_s,
        "closing_s": ended_unix_s - main_unix_s - phases["mpi_s"] - report["seconds"],
    }


def repeated(before: int, after: dict[str, int], folder: Path) -> Line:
    """Tokens computed twice by a run that was interrupted: `before` then, `after` by the start that went on."""
    results = Results(folder)
    columns = results.columns(["prompt_tokens", "output_tokens"])
    results.close()
    needed = int(np.sum(columns["prompt_tokens"])) + int(np.sum(columns["output_tokens"]))
    tokens = before + counted(after) - needed
    return {"before_tokens": before, "repeated_tokens": tokens, "needed_tokens": needed}


class Bench:
    def __init__(self, work: Work, rounds: int) -> None:
        self.files, self.work = work, work.folder
        shapes = {"batch": ("bench-135m", SHAPE_135M), "tiny": ("bench-tiny", SHAPE_TINY)}
        self.models = {name: bench_model(folder, **shape) for name, (folder, shape) in shapes.items()}
        self.shards = {
            name: work.prompts(name, "--lengths", *of, "--poisson", 1, "--requests", requests, "--vocab", vocab)
            for name, (vocab, requests, *of) in PROMPTS.items()
        }
        self.rounds = rounds
        self.round = 0
        self.runs = 0

    def command(
        self, model: str, prompts: str, name: str, ranks: int, settings: Sequence[str]
    ) -> list[str]:
        job = self.files.job(
            "job",
            model={"path": str(self.models[model])},
            input=[str(self.shards[prompts])],
            output=str(self.work / name),
            generation={"ignore_eos": True},
        )
        chosen = [word for setting in settings for word in ("--set", setting)]
        return [*map(str, mpirun(ranks)), str(BIN / "pecia"), "run", str(job), *chosen]

    def log(self) -> Path:
        self.runs += 1
        return self.work / f"run-{self.runs}.log"

    def line(self, what: str, report: dict[str, Any], **figures: Any) -> None:
        about = {
            "bench": "bench_job",
            "what": what,
            "round": self.round,
            "commit": report["build"]["commit"],
            "cpu": report["machine"]["cpu"],
            "ranks": len(report["ranks"]),
        }
        self.files.keep([{**about, **figures}])

    def fresh(self, name: str) -> Path:
        """The run's folder, which is not there now."""
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def whole(self, model: str, prompts: str, ranks: int, settings: Sequence[str]) -> Line:
        """An undisturbed run."""
        folder = self.fresh("whole")
        command = self.command(model, prompts, "whole", ranks, settings)
        with launched(command, self.log()) as run:
            ended = run.end()
        report = read_json(folder / "report.json")
        figures = timed(report, run.begun_unix_s, ended)
        figures["startup"]["first_token_s"] = first_token_s(folder)
        return {"report": report, "requests": report["counts"]["done"], **figures}

    def overhead(self) -> None:
        pair = [("on", ON), ("off", OFF)]
        for job_layer, settings in pair if self.round % 2 else reversed(pair):
            found = self.whole("batch", "batch", RANKS, [*BATCH, *settings])
            self.line("batch", found.pop("report"), job_layer=job_layer, **found)

    def tiny(self) -> None:
        for prompts in ("few", "many"):
            found = self.whole("tiny", prompts, 1, ON)
            self.line("tiny", found.pop("report"), **found)

    def until_midway(self, run: LaunchedRun, folder: Path) -> int:
        """Waits for a moment that differs by round; tokens computed until then, as progress.json says."""
        path = folder / "progress.json"
        share = 0.2 + 0.5 * self.round / (self.rounds + 1)
        seen: dict[str, Any] = {}

        def midway() -> bool:
            if path.exists():
                seen.update(read_json(path))
            return seen.get("work_share", 0) >= share and seen["turns"]["done"] > 0

        run.wait_for(f"{share:.0%} of its work", midway)
        return seen["prompt_tokens"]["done"] + seen["output_tokens"]

    def goes_on(self, command: Sequence[str], folder: Path) -> dict[str, Any]:
        """The report of the start that finishes an interrupted run."""
        with launched(command, self.log()) as run:
            run.end()
        return read_json(folder / "report.json")

    def drain(self) -> None:
        folder = self.fresh("drained")
        command = self.command("batch", "batch", "drained", RANKS, [*BATCH, *ON])
        with launched(command, self.log()) as run:
            self.until_midway(run, folder)
            ranks = run.ranks()
            begun = time.monotonic()
            for process in ranks:
                os.kill(process, signal.SIGTERM)
            run.end(DRAINED)
            exit_s = time.monotonic() - begun
        before = counted(read_json(folder / "report.json")["counts"])
        report = self.goes_on(command, folder)
        figures = repeated(before, report["counts"], folder)
        self.line("drain", report, exit_s=exit_s, **figures)

    def faulty(self, name: str, number: int, words: str, settings: Sequence[str]) -> Line:
        """A run whose last rank is sent a signal; seconds until that is said, and until mpirun's end."""
        folder = self.fresh(name)
        command = self.command("batch", "batch", name, RANKS, [*BATCH, *ON, *settings])
        with launched(command, self.log()) as run:
            before = self.until_midway(run, folder)
            victim = run.ranks()[RANKS - 1]
            begun = time.monotonic()
            os.kill(victim, number)
            named_s = run.seconds_to_words(rf"pecia: rank {RANKS - 1} \(host .*\) {words}", begun)
            run.end(None)
            figures = {"named_s": named_s, "exit_s": time.monotonic() - begun}
        report = self.goes_on(command, folder)
        return {"report": report, **figures, **repeated(before, report["counts"], folder)}

    def death(self) -> None:
        found = self.faulty("killed", signal.SIGKILL, "has died", ())
        self.line("dead_rank", found.pop("report"), **found)

    def hang(self) -> None:
        settings = (f"limits.silence={SILENCE_S}s",)
        found = self.faulty("hung", signal.SIGSTOP, "shows no sign of life", settings)
        self.line("hung_rank", found.pop("report"), silence_s=SILENCE_S, **found)

    def all_rounds(self) -> None:
        # Brings the weights into the page cache and measures rates, which later runs find in the user's cache.
        found = self.whole("batch", "batch", RANKS, [*BATCH, *ON])
        self.line("first", found.pop("report"), **found)
        while self.round < self.rounds:
            self.round += 1
            self.files.note(f"round {self.round} of {self.rounds}, {load()}")
            for measure in (self.overhead, self.tiny, self.drain, self.death, self.hang):
                self.files.note(f"round {self.round}: {measure.__name__}")
                measure()


def main(arguments: list[str]) -> int:
    options = bench_parser("job", __doc__, "--rounds 2", rounds=4).parse_args(arguments)
    work = Work("job", options.json)
    work.build("pecia")
    on_this_machine()
    os.environ["XDG_CACHE_HOME"] = str(work.folder / "cache")  # empty: what earlier runs measured is not there
    os.environ.pop("PECIA_NO_CACHE", None)
    Bench(work, options.rounds).all_rounds()
    tables(work.lines)
    return 0
