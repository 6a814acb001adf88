#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does a change that only moves code leave what the program does as it was?

    .venv/bin/python tests/same_behaviour.py BEFORE AFTER [--jobs PART]

BEFORE and AFTER are two builds of the program (build/release/bin/pecia of two trees). Each runs the same jobs:
every row of the table of modes with both ways of decoding, csa, elastic teams, narrow caches, the same bits on every
layout, sampling, stop strings, forks. Compared are all bits of the results but their times, the bytes and operations
of every link, the modes and grids in report.json, and what `pecia plan`, `--help` and refusals print.

Exit code 1: something differs, and it is named. It takes about three minutes on two cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
# The harness is of tests that CMake starts; here the programs are named by the command line.
os.environ.setdefault("PECIA_MPIEXEC", "mpiexec")
os.environ.setdefault("PECIA_PROGRAM", "")
os.environ.setdefault("PECIA_SOURCE", str(ROOT))
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from harness import Results, random_requests, write_shard  # noqa: E402

MODELS = {"dense": "mistral-window16", "mixture": "mixtral-window16", "whole": "llama-gqa-fp32"}
LIMIT_S = 300
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_pml": "ob1",
    "PECIA_NO_CACHE": "1",
}


@dataclass
class Job:
    name: str
    ranks: int
    model: str = "dense"
    requests: int = 8
    longest: int = 90
    followup: str = "chain"
    sections: dict[str, Any] = field(default_factory=dict)


def rows_of_modes() -> Iterator[dict[str, Any]]:
    """Each row of lib/ranks/parallel/modes.md with each of its modes, on two to four ranks."""
    ring = {"cp": 3, "prefill": "ring"}
    for exchange, decode in itertools.product(("pass_kv", "pass_q"), ("pass_q", "broadcast_q")):
        yield {**ring, "ring": exchange, "decode": decode}
    yield {"sp": 2, "prefill": "ulysses", "decode": "sp"}
    yield {"sp": 2, "prefill": "ulysses", "decode": "shift", "shift_threshold": 4}
    for prefill in ("tp", "sp_tp", "ulysses"):
        yield {"tp": 2, "prefill": prefill, "decode": "tp"}
    yield {"cp": 2, "sp": 2, "prefill": "usp", "ring": "pass_kv", "decode": "pass_q"}
    yield {"cp": 2, "sp": 2, "prefill": "usp", "ring": "pass_q", "decode": "broadcast_q"}
    for prefill in ("ring", "sp_tp"):
        yield {"cp": 2, "tp": 2, "prefill": prefill, "ring": "pass_kv", "decode": "broadcast_q"}
    for prefill, decode in (("ulysses", "sp"), ("sp_tp", "shift")):
        threshold = {"shift_threshold": 4} if decode == "shift" else {}
        yield {"sp": 2, "tp": 2, "prefill": prefill, "decode": decode, **threshold}


def jobs() -> Iterator[Job]:
    batch = {"max_sequences": 4, "max_batch_tokens": 64}
    generation = {"max_new_tokens": 12, "ignore_eos": True, "logprobs": 2}
    base = {"batch": batch, "generation": generation}
    for model in ("dense", "mixture"):
        yield Job(f"one-{model}", 1, model, sections=base)
        for index, parallel in enumerate(rows_of_modes()):
            policy = ("prefill_first", "chunked")[index % 2]
            ranks = parallel.get("cp", 1) * parallel.get("sp", 1) * parallel.get("tp", 1)
            name = "-".join([model, *(f"{key}={value}" for key, value in parallel.items())])
            sections = {**base, "parallel": parallel, "batch": {**batch, "policy": policy}}
            yield Job(name, ranks, model, sections=sections)
    yield Job("experts", 2, "mixture", sections={**base, "parallel": {"tp": 2, "ep": 2}})
    for count, degrees in ((2, {}), (4, {"sp": 2}), (3, {})):
        elastic = {"cp": "elastic", **degrees}
        yield Job(f"elastic-{count}", count, sections={**base, "parallel": elastic})
    levels = {"sparse": "csa", "drop": 0.5, "levels": 2}
    for name, count, parallel in (
        ("csa-home", 2, {"cp": 2, "decode": "pass_q"}),
        ("csa-heads", 2, {"tp": 2, "prefill": "sp_tp", "decode": "tp"}),
        ("csa-sp", 4, {"cp": 2, "sp": 2, "decode": "broadcast_q"}),
    ):
        large = {"max_sequences": 2, "max_batch_tokens": 512}
        yield Job(name, count, "whole", 4, 500, sections={
            **base, "batch": large, "attention": levels, "parallel": parallel})
    for dtype, parallel in (("bf16", {"cp": 2}), ("fp8", {"sp": 2}), ("fp16", {"tp": 2})):
        yield Job(f"keys-{dtype}", 2, sections={**base, "kv": {"dtype": dtype}, "parallel": parallel})
    for dtype, parallel in (("bf16", {"tp": 2}), ("int8", {"tp": 2}), ("int4", {"cp": 2})):
        yield Job(f"weights-{dtype}", 2, sections={
            **base, "model": {"dtype": dtype}, "parallel": parallel})
    yield Job("layout", 2, sections={**base, "reproducible": "layout", "parallel": {"cp": 2}})
    yield Job("layout-tp", 2, sections={**base, "reproducible": "layout", "parallel": {"tp": 2}})
    sampled = {**generation, "temperature": 0.9, "top_k": 20, "top_p": 0.9, "seed": 5, "prompt_logprobs": 1}
    yield Job("sampled", 2, sections={**base, "generation": sampled, "parallel": {"cp": 2}})
    yield Job("stop", 1, sections={**base, "generation": {"max_new_tokens": 24, "stop_token_ids": [5, 9, 30]}})
    yield Job("forks", 3, followup="fork", sections={**base, "parallel": {"cp": 3}})
    yield Job("fcfs", 2, sections={**base, "batch": {**batch, "order": "fcfs"}, "parallel": {"dp": 2}})
    yield Job("auto", 4, sections={**base, "parallel": {"cp": 2, "tp": 2}})


# What `report.json` says that does not depend on the machine's speed on that day.
LINK = ("pattern", "group", "level", "bytes", "operations")


def of_report(report: dict[str, Any]) -> dict[str, Any]:
    # Without the links that measure the machine's rates: they may be read from a cache instead.
    links = [{key: link.get(key) for key in LINK} for link in report.get("links", [])]
    sections = ("grid", "modes", "requests", "tokens", "sparse", "prefix_sharing")
    kept = {key: report.get(key) for key in sections}
    if kept["modes"]:  # reasons hold rates that were measured
        kept["modes"]["why"] = re.sub(r"[\d.]+ ?[kMGT]?", "N", kept["modes"].get("why") or "")
    return {"links": links, **kept}


def run(program: Path, job: Job, folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True)
    write_shard(folder / "prompts.h5", random_requests(job.requests, 1, job.longest, 71, 3), job.followup)
    sections: dict[str, Any] = {
        "model": {"path": str(ROOT / "tests" / "goldens" / MODELS[job.model])},
        "input": ["prompts.h5"],
        "output": "run",
        "report": {"trace": "off", "progress": "off", "peak": "off"},
    }
    for section, values in job.sections.items():
        old = sections.get(section)
        sections[section] = {**old, **values} if isinstance(old, dict) else values
    parallel = sections.get("parallel", {})
    if isinstance(parallel.get("cp"), int):  # by rule, the exchange depends on measured rates
        sections["parallel"] = {"ring": "pass_kv", **parallel}
    path = folder / "job.yaml"
    path.write_text(json.dumps(sections))
    command = [str(program), "run", str(path)]
    if job.ranks > 1:
        command = ["mpiexec", "--bind-to", "none", "-np", str(job.ranks), *command]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=ENVIRONMENT)
    if ended.returncode != 0:
        return {"code": ended.returncode, "said": without_places(ended.stderr, folder)}
    found: dict[str, Any] = {"code": 0}
    for name, values in Results.read(folder / "run" / "results.h5").columns.items():
        if not name.endswith("_s") and name != "replica":  # replicas take what comes next
            found[f"/{name}"] = values
    found.update(of_report(json.loads((folder / "run" / "report.json").read_text())))
    return found


def without_places(text: str, folder: Path) -> str:
    """Words without the folder and the numbers of processes, which differ from run to run."""
    return re.sub(r"\d+", "N", text.replace(str(folder), "FOLDER"))


def timed_ops() -> Iterator[dict[str, Any]]:
    """What pecia-bench ops --json writes on a GPU, as a calibration reads it."""
    yield {"machine": "made up", "backend": "cuda"}
    for rows in (64, 4096):
        work = {"rows": rows, "item_rows": rows, "operands": "bf16", "bytes": 4e7}
        product = {"op": "linear", "depth": 4096, "width": 4096, "flops": 2 * rows * 4096**2, **work}
        attention = {"op": "attention", "depth": 8192, "width": 4096, "flops": 4 * rows * 8192 * 4096, **work}
        norm = {"op": "rms_norm", "depth": 0, "width": 0, "flops": 0, **work}
        for op, seconds in ((product, 5e-4), (attention, 1.5e-3), (norm, 3e-5)):
            yield {"op": op["op"], "shape": f"{rows} rows", "median_s": seconds, "work": [op]}


def printed(program: Path, folder: Path) -> dict[str, Any]:
    """What the program says without running a job."""
    folder.mkdir(parents=True)
    write_shard(folder / "prompts.h5", random_requests(12, 1, 90, 71, 3), "chain")
    path = str(ROOT / "tests" / "goldens" / MODELS["dense"])
    (folder / "job.yaml").write_text(json.dumps({"model": {"path": path}, "input": ["prompts.h5"], "output": "run"}))
    (folder / "ops.jsonl").write_text("\n".join(json.dumps(line) for line in timed_ops()))
    plan, small = ["plan", "--cluster", "h100-gtt"], ["--model", "llama-3.1-8b"]
    grid = [f"--set=parallel.{degree}=1" for degree in ("dp", "sp", "tp")]
    csa = ["plan", "--model", "qwen2.5-32b", "--cluster", "a800-4x200", "--ranks", "4,8", "--set=attention.sparse=csa"]
    elastic = [*plan, *small, "--ranks", "4", "--request", "50000:32x4", "--set", "parallel.cp=elastic"]
    batch = ["--request", "20000:500x40", "--request", "3000+5000:50x8"]
    commands = {
        "help": ["--help"],
        "run --help": ["run", "--help"],
        "plan --help": ["plan", "--help"],
        "plan modes": ["plan", "--modes"],
        "plan modes of a job": ["plan", "job.yaml", "--modes", "--ranks", "2"],
        "plan": [*plan, *small, "--ranks", "8", "--request", "100000:256", "--json"],
        "plan too long": [*csa, "--request", "300000:64", "--json"],
        "plan csa": [*csa, "--request", "100000:64", "--json"],
        "plan csa table": [*csa, "--request", "100000:64"],
        "plan elastic": [*elastic, "--json"],
        "plan elastic table": [*elastic, *grid],
        "plan job": ["plan", "job.yaml", "--ranks", "2", "--backend", "cpu", "--json"],
        "plan job table": ["plan", "job.yaml", "--ranks", "2", "--backend", "cpu"],
        "plan job refused": ["plan", "job.yaml", "--ranks", "7", "--set", "parallel.tp=7", "--backend", "cpu"],
        "plan prompts": [*plan, "job.yaml", "--ranks", "1,2", "--json"],
        "plan prompts table": [*plan, "job.yaml", "--ranks", "1,2"],
        "plan batch table": ["plan", "--model", "llama-3.3-70b", "--gpu", "h100-80gb", "--ranks", "1,4,8", *batch],
        "plan many ranks": [*plan, *small, "--ranks", "192", *batch],
        "plan too large": [*plan, "--model", "llama-3.1-70b", "--ranks", "1", "--request", "9000:5", "--json"],
        "plan calibrate": [*plan, "--calibrate", "ops.jsonl"],
        "plan fitted": [*plan, *small, "--ranks=2", "--request=900", "--calibrate", "ops.jsonl", "--json"],
        "refused": ["run", "nowhere.yaml"],
    }
    found = {}
    for name, arguments in commands.items():
        ended = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=LIMIT_S, cwd=folder)
        said = re.sub(r"pecia plan: \d+ of \d+ layouts\n", "", ended.stderr)  # progress, by the clock
        found[name] = (ended.returncode, ended.stdout, said.replace(str(program), "pecia"))
    return found


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    found = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
            if old.dtype != new.dtype or old.shape != new.shape or old.tobytes() != new.tobytes():
                found.append(f"{key} has other values")
        elif json.dumps(old, default=str) != json.dumps(new, default=str):
            found.append(f"{key}: {shortened(old)} → {shortened(new)}")
    return found


def shortened(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) < 400 else f"{text[:400]}…"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--jobs", default="", help="only the jobs with this in their name")
    options = parser.parse_args()
    programs = {"before": options.before.resolve(strict=True), "after": options.after.resolve(strict=True)}
    failed = 0
    compared = 0
    with tempfile.TemporaryDirectory(prefix="pecia-same-") as name:
        for job in [None, *jobs()]:
            title = job.name if job else "printed"
            if options.jobs not in title:
                continue
            sides = [
                run(program, job, Path(name, side, title)) if job else printed(program, Path(name, side, title))
                for side, program in programs.items()
            ]
            compared += 1
            found = differences(*sides)
            if job and sides[0]["code"] != 0:
                found.append(f"the job ends with code {sides[0]['code']}: {sides[0]['said'][:400]}")
            failed += bool(found)
            for line in found:
                print(f"{title}: {line}", flush=True)
    print(f"{compared - failed} of {compared} are the same")
    return 1 if failed or compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
