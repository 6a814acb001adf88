# SPDX-License-Identifier: Apache-2.0
"""What `pecia plan` foresees for this machine beside what it takes. For each number of ranks and each
mode it asks for the times of prompts and decode steps, and times them. With --batches it runs whole batches of mixed
requests: their end by the plan and by the run's own first lines, and the memory of a rank.

The machine is described (its cluster file is measured) right before and right after each mode, and the mean of both
plans counts: other guests of a host change the speed of its memory within minutes. Prints tables with the error of each
time, and their median. Other work on the machine moves the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..command import Failure
from ..gguf import demo_model
from .common import (
    BENCH,
    BIN,
    MODEL,
    ROOT,
    Line,
    Work,
    lengths,
    load,
    model_parser,
    read,
    show,
    write_prompts,
)

WORK = ROOT / "runs" / "bench-foresight"
STEPS = 16  # of a run of decode steps


@dataclass(frozen=True)
class Mode:
    """A way to share a request: keys of a job, and options of pecia-bench prefill and decode; None: another mode has
    the same. N stands for the ranks."""

    job: str
    prefill: str | None
    decode: str | None


# Prompt tokens, answer tokens, and how many requests are like this.
BATCHES = {
    "short answers": [(1500, 16, 8), (300, 16, 16), (4000, 16, 2)],
    "long answers": [(200, 128, 16), (1000, 96, 4)],
    "all sizes": [(6000, 32, 1), (2500, 64, 3), (700, 64, 8), (80, 128, 12)],
}

ALONE = {"alone": Mode("", "", "")}
SHARED = {
    "cp pass_kv": Mode("cp=N ring=pass_kv decode=pass_q", "--ring pass_kv", "--ring pass_q"),
    "cp pass_q": Mode("cp=N ring=pass_q decode=broadcast_q", "--ring pass_q", "--ring broadcast_q"),
    "sp": Mode("sp=N prefill=ulysses decode=sp", "--sp N", "--sp N"),
    "sp shift": Mode(
        "sp=N prefill=ulysses decode=shift shift_threshold=1", None, "--sp N --sharding shift"
    ),
    "tp": Mode("tp=N prefill=tp decode=tp", "--tp N", "--tp N"),
    "tp sp_tp": Mode("tp=N prefill=sp_tp decode=tp", "--tp N --sharding sp_tp", None),
    "tp gathered": Mode("tp=N prefill=ulysses decode=tp", "--tp N --sharding gathered", None),
}


def words(text: str, ranks: int) -> list[str]:
    return [word.replace("N", str(ranks)) for word in text.split()]


def launched(ranks: int, *command: object) -> str:
    """What the command prints on the ranks."""
    has_cores = 1 < ranks <= len(os.sched_getaffinity(0))
    binding = ["--bind-to", "core"] if has_cores else ["--bind-to", "none", "--oversubscribe"]
    launch = ["mpirun", "-np", ranks, *binding]
    root = {f"OMPI_ALLOW_RUN_AS_ROOT{suffix}": "1" for suffix in ("", "_CONFIRM")}
    done = subprocess.run(
        [str(word) for word in [*(launch if ranks > 1 else []), *command]],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **(root if os.geteuid() == 0 else {})},
        check=False,
    )
    if done.returncode != 0:
        name = Path(str(command[0])).name
        what = Refused if done.returncode == 2 else Failure  # wrong input
        raise what(f"{name} ended with code {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def describe(ranks: int, threads: int) -> Path:
    file = WORK / f"ranks-{ranks}.yaml"
    os.environ["OMP_NUM_THREADS"] = str(threads)
    launched(ranks, BIN / "pecia", "topology", "--measure", "--cluster-file", file)
    return file


def foresee(cluster: Path, model: Path, ranks: int, mode: Mode, tokens: Sequence[int]) -> Line:
    """The plan: its requests are those prompts with short answers."""
    command = [BIN / "pecia", "plan", "--model", model, "--ranks", ranks, "--cluster", cluster]
    for word in words(mode.job, ranks):
        command += ["--set", f"parallel.{word}"]
    for count in tokens:
        command += ["--request", f"{count}:{2 * STEPS}"]
    plan: Line = json.loads(launched(1, *command, "--json"))["plans"][0]
    return plan


class Refused(Failure):
    """A program does not run with these options."""


def bench(name: str, ranks: int, threads: int, model: Path, *options: object) -> list[Line]:
    lines = WORK / "lines.jsonl"
    lines.unlink(missing_ok=True)
    common = ["--model", model, "--threads", threads, "--json", lines]
    launched(ranks, BENCH, name, *common, *options)
    return read(lines)


def measured(
    ranks: int, threads: int, model: Path, mode: Mode, tokens: Sequence[int], pass_tokens: int
) -> tuple[dict[int, float], dict[int, float]]:
    """Seconds of prompts and of decode steps, by tokens."""
    prompts, steps = {}, {}
    if mode.prefill is not None:
        # The longest prompt comes first, too: its pass touches the memory, and its second line counts.
        listed = ",".join(map(str, [max(tokens), *tokens]))
        given = ["--tokens", listed, "--batch-tokens", pass_tokens, "--runs", 1, "--warmups", 0]
        lines = bench("prefill", ranks, threads, model, *given, *words(mode.prefill, ranks))
        prompts = {line["tokens"]: line["seconds"]["median"] for line in lines if "seconds" in line}
    if mode.decode is not None:
        listed = ",".join(map(str, tokens))
        given = ["--contexts", listed, "--batches", 1, "--steps", STEPS, "--runs", 3]
        lines = bench("decode", ranks, threads, model, *given, *words(mode.decode, ranks))
        steps = {
            line["context"]: line["step_seconds"]["median"]
            for line in lines
            if "step_seconds" in line
        }
    return prompts, steps


class Described:
    """The machine's cluster file, measured again each time, or the user's."""

    def __init__(self, ranks: int, threads: int, given: Path | None) -> None:
        self.ranks, self.threads, self._given = ranks, threads, given
        self.file = given or describe(ranks, threads)

    def again(self) -> Path:
        self.file = self._given or describe(self.ranks, self.threads)
        return self.file


def compare(options: argparse.Namespace, machine: Described, name: str) -> list[Line]:
    mode, ranks, threads = (ALONE | SHARED)[name], machine.ranks, machine.threads
    before = foresee(machine.file, options.model, ranks, mode, options.tokens)
    pass_tokens = before["max_batch_tokens"]
    prompts, steps = measured(ranks, threads, options.model, mode, options.tokens, pass_tokens)
    after = foresee(machine.again(), options.model, ranks, mode, options.tokens)
    common = {"model": options.model.name, "ranks": ranks, "threads": threads, "mode": name}
    found: list[Line] = []
    for first, second in zip(before["requests"], after["requests"], strict=True):
        tokens = first["prompt_tokens"]
        for what, key, seconds in (
            ("prompt", "ttft_s", prompts.get(tokens)),
            ("step", "tbt_s", steps.get(tokens)),
        ):
            if seconds is not None:
                line = {"what": what, "tokens": tokens, "seconds": seconds}
                if what == "prompt":
                    line["parts"] = first["prefill"]
                found.append({**common, **line, **foreseen(first[key], second[key], seconds)})
    return found


def foreseen(before: float, after: float, measured: float) -> Line:
    """What was foreseen by the descriptions before and after what was measured."""
    mean = statistics.mean([before, after])
    return {"foreseen_s": mean, "by_descriptions": [before, after], "off": mean / measured - 1}


def write_batch(file: Path, sizes: Sequence[tuple[int, int, int]], vocabulary: int) -> None:
    prompts, answers = np.array([size[:2] for size in sizes for _ in range(size[2])], dtype=np.int32).T
    tokens = np.random.default_rng(1).integers(0, vocabulary, prompts.sum())
    write_prompts(file, tokens, prompts.tolist(), max_new_tokens=answers)


def run_batch(model: Path, machine: Described, name: str) -> list[Line]:
    """What the plan and the run say of a batch, beside what the run takes."""
    ranks, threads = machine.ranks, machine.threads
    shard, output, job = WORK / "batch.h5", WORK / "batch.run", WORK / "batch.yaml"
    config = json.loads((model / "config.json").read_text())
    write_batch(shard, BATCHES[name], config["vocab_size"])
    values: Line = {"model": {"path": str(model.resolve())}, "input": [str(shard)], "output": str(output)}
    values["generation"] = {"ignore_eos": True}
    job.write_text(json.dumps(values), encoding="utf-8")  # JSON is YAML
    os.environ["OMP_NUM_THREADS"] = str(threads)
    kept = ["--set", f"parallel.cp={ranks}", "--set", "parallel.sp=1", "--set", "parallel.tp=1"]
    plan = plan_batch(job, machine, kept)
    keys = ("dp", "cp", "sp", "tp", "prefill", "ring", "decode", "shift_threshold")
    chosen = {key: plan["parallel"][key] for key in keys if plan["parallel"].get(key) is not None}
    job.write_text(json.dumps({**values, "parallel": chosen}), encoding="utf-8")
    launched(ranks, BIN / "pecia", "run", job, "--fresh")
    report = json.loads((output / "report.json").read_text())
    began = sum(value for key, value in report["startup"].items() if key.endswith("_s") and "unix" not in key)
    began -= report["startup"]["mpi_s"]
    machine.again()
    end_after = plan_batch(job, machine, [])["end_s"]
    memory = plan["memory_bytes_per_rank"]
    told, resident = (
        1e-9 * (memory["program"] + memory["weights"] + memory["kv"] + memory["work"]),
        1e-9 * max(rank["peak_rss_bytes"] for rank in report["ranks"]),
    )
    by_run = report["predicted"]["seconds"]
    cases = {
        "end by the plan": (plan["end_s"], end_after, report["seconds"] - began),
        "end by the run": (by_run, by_run, report["seconds"]),
        "memory in GB": (told, told, resident),
    }
    common = {"model": model.name, "ranks": ranks, "threads": threads, "mode": name, "tokens": 0}
    return [
        {**common, "what": what, "seconds": case[-1], **foreseen(*case)}
        for what, case in cases.items()
    ]


def plan_batch(job: Path, machine: Described, settings: Sequence[str]) -> Line:
    asked = ["--ranks", machine.ranks, "--cluster", machine.file, "--set", "parallel.dp=1", "--json"]
    plan: Line = json.loads(launched(1, BIN / "pecia", "plan", job, *asked, *settings))["plans"][0]
    return plan


def batch_table(lines: Sequence[Line]) -> None:
    chosen = medians([line for line in lines if line["tokens"] == 0])
    rows = [
        [
            line["model"],
            f"{line['ranks']} × {line['threads']}",
            line["mode"],
            line["what"],
            f"{line['foreseen_s']:.2f}",
            f"{line['seconds']:.2f}",
            f"{100 * line['off']:+.1f} %",
        ]
        for line in chosen
    ]
    heads = ("model", "ranks × threads", "batch", "what", "foreseen", "measured", "foreseen is off by")
    show("Batches (ends in s)", heads, rows)


def medians(lines: Sequence[Line]) -> list[Line]:
    """One line for each case: the medians of its rounds."""
    cases: dict[tuple[object, ...], list[Line]] = {}
    for line in lines:
        case = (line["model"], line["ranks"], line["mode"], line["what"], line["tokens"])
        cases.setdefault(case, []).append(line)
    numbers = ("foreseen_s", "seconds", "off")
    return [
        {**rounds[0], **{key: statistics.median(line[key] for line in rounds) for key in numbers}}
        for rounds in cases.values()
    ]


def tables(lines: Sequence[Line]) -> None:
    for what, title in (("prompt", "Prompts"), ("step", "Decode steps of one sequence")):
        chosen = medians([line for line in lines if line["what"] == what])
        rows = [
            [
                line["model"],
                f"{line['ranks']} × {line['threads']}",
                line["mode"],
                str(line["tokens"]),
                f"{1e3 * line['foreseen_s']:.1f}",
                f"{1e3 * line['seconds']:.1f}",
                f"{100 * line['off']:+.1f} %",
            ]
            for line in chosen
        ]
        heads = ("model", "ranks × threads", "mode", "tokens", "foreseen ms", "ms", "foreseen is off by")
        show(title, heads, rows)
        if chosen:
            off = [100 * abs(line["off"]) for line in chosen]
            print(f"\nIn the median off by {statistics.median(off):.1f} %, at most by {max(off):.1f} %.")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = model_parser("foresight", __doc__, "--ranks 2 --modes 'cp pass_kv,sp' --tokens 512,2048")
    add = parser.add_argument
    add("--tokens", type=lengths, default="512,2048,8192", help="default: %(default)s")
    add("--ranks", type=lengths, default="1,2", help="default: %(default)s")
    add(
        "--modes",
        type=lambda text: text.split(","),
        default=list(ALONE | SHARED),
        help="default: all that the ranks and the model allow: " + ", ".join(ALONE | SHARED),
    )
    add(
        "--cluster",
        type=Path,
        help="a cluster file of this machine with the same number of ranks (default: it is measured)",
    )
    add("--batches", action="store_true", help="whole batches instead of single requests")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.modes if name not in ALONE | SHARED]
    if unknown:
        parser.error(f"{unknown[0]!r} is no mode; the modes are {', '.join(ALONE | SHARED)}")
    return options


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    work = Work("foresight", options.json, fresh=False)
    if options.model == MODEL:
        demo_model.main([str(MODEL)])
    work.build("pecia", "pecia-bench")
    for number in range(1, options.rounds + 1):
        for ranks in options.ranks:
            work.note(f"round {number} of {options.rounds}, {ranks} ranks, {load()}")
            machine = Described(ranks, max(1, options.threads // ranks), options.cluster)
            if options.batches:
                for name in BATCHES:
                    work.keep(run_batch(options.model, machine, name), round=number)
                continue
            for name in ALONE if ranks == 1 else SHARED:
                if name not in options.modes:
                    continue
                try:
                    found = compare(options, machine, name)
                except Refused as refused:
                    work.note(f"{name} is left out: {refused}")
                    continue
                work.keep(found, round=number)
    if options.batches:
        batch_table(work.lines)
    else:
        tables(work.lines)
    return 0
