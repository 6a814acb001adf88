# SPDX-License-Identifier: Apache-2.0
"""Weights that no rank has memory for: a model of random weights in four stages, each rank on a host of its own with a
memory cgroup that allows a third of the weights; one rank under the same limit, which must be refused or killed; and
one without a limit, whose answers the stages must repeat. Weights are copied into each rank's own memory
(model.replicate), since pages of mapped files can be given back and read again. Hosts are names (UTS namespaces) that
talk over the loopback. Needs root, a writable memory cgroup, and the weights' size on the disk. Prints the most memory
of each rank.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..command import Failure, UserError
from ..runs.results import Results
from .common import (
    BIN,
    ROOT,
    Line,
    Work,
    bench_model,
    bench_parser,
    mpirun,
    on_this_machine,
    positive,
    show,
)
from .growth import MIB, weight_bytes

STAGES = 4
SHAPE = {"layers": 28, "hidden": 2048, "heads": 16, "kv-heads": 4, "ffn": 8192, "vocab": 8192}
TINY = {"layers": 8, "hidden": 1024, "heads": 8, "kv-heads": 2, "ffn": 4096, "vocab": 2048}
REQUESTS, PROMPT, ANSWER = 4, 64, 8
SAMPLE_S = 0.1
REFUSED = 2  # exit code
# What mpirun starts its daemons by, instead of ssh: AGENT HOST COMMAND.
AGENT = """#!/bin/sh
host=$1
shift
exec unshare --uts sh -c 'hostname "$1"; exec sh -c "$2"' sh "$host" "$*"
"""
HOSTS = ("h1", "h2", "h3", "h4")
CGROUPS = Path("/sys/fs/cgroup")
# In versions 1 and 2: the limit, the most that was used, and in memory.stat what is no page of a file.
FILES = {
    "memory": ("memory.limit_in_bytes", "memory.max_usage_in_bytes", "total_rss"),
    "": ("memory.max", "memory.peak", "anon"),
}  # fmt: skip


@dataclass
class MemoryGroup:
    """A memory cgroup with a limit, which is removed at the end."""

    folder: Path
    files: tuple[str, str, str]
    own_bytes: int = 0  # the most that was not pages of files, as sampled

    @staticmethod
    def make(name: str, limit: int) -> MemoryGroup:
        for mount, files in FILES.items():
            folder = CGROUPS / mount / name
            try:
                folder.mkdir()
                (folder / files[0]).write_text(str(limit))
            except OSError:
                if folder.is_dir():
                    folder.rmdir()
                continue
            return MemoryGroup(folder, files)
        raise UserError(f"no memory cgroup can be made under {CGROUPS}: run as root, where they may be written")

    def sample(self) -> None:
        stat = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        self.own_bytes = max(self.own_bytes, int(stat[self.files[2]]))

    def peak_bytes(self) -> int:
        return int((self.folder / self.files[1]).read_text())


class Limited:
    """A run whose ranks each have a host and a memory cgroup of their own."""

    def __init__(self, work: Work, ranks: int, limit: int) -> None:
        self.work = work
        self.prefix = f"pecia-bench-{os.getpid()}"
        self.groups = [MemoryGroup.make(f"{self.prefix}-{rank}", limit) for rank in range(ranks)]

    def run(self, command: Sequence[object]) -> tuple[int, str]:
        """Its exit code, and the last line that the program said."""
        entry = f"{self.groups[0].folder.parent}/{self.prefix}-$OMPI_COMM_WORLD_RANK/cgroup.procs"
        hosts = ",".join(HOSTS[: len(self.groups)])
        enter = f'echo $$ > {entry} && exec "$@"'
        words = [str(word) for word in (*mpirun(len(self.groups), hosts), "sh", "-c", enter, "sh", *command)]
        log = self.work.folder / "limited.log"
        over = threading.Event()
        sampler = threading.Thread(target=self.sample, args=(over,))
        sampler.start()
        try:
            with log.open("wb") as out:
                done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False)
        finally:
            over.set()
            sampler.join()
        text = log.read_text(errors="replace")
        with self.work.log.open("a") as all_logs:
            all_logs.write(text)
        said = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("pecia: ")]
        return done.returncode, said[-1] if said else ""

    def sample(self, over: threading.Event) -> None:
        while not over.wait(SAMPLE_S):
            for group in self.groups:
                group.sample()

    def close(self) -> None:
        for group in self.groups:
            group.folder.rmdir()


def answers(folder: Path) -> list[list[int]]:
    results = Results(folder)
    try:
        return [[int(token) for token in results.tokens(turn)] for turn in results.turns()]
    finally:
        results.close()


def hosts_of_their_own(folder: Path) -> None:
    """Lets mpirun take HOSTS for other machines than this one."""
    agent = folder / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    os.environ.update(
        OMPI_MCA_plm="rsh", OMPI_MCA_plm_rsh_agent=str(agent), OMPI_MCA_btl="self,vader,tcp",
        OMPI_MCA_btl_tcp_if_include="lo", OMPI_MCA_oob_tcp_if_include="lo",
    )  # fmt: skip


def vocab_of(model: Path) -> int:
    return int(json.loads((model / "config.json").read_text("utf-8"))["vocab_size"])


class Stages:
    def __init__(self, work: Work, model: Path, limit: Optional[int] = None) -> None:
        self.work, self.model = work, model
        self.weights = weight_bytes(model)
        self.limit = limit or self.weights // 3
        self.prompts = work.prompts(
            "prompts", "--lengths", PROMPT, ANSWER, "--requests", REQUESTS, "--poisson", 1, "--vocab", vocab_of(model)
        )

    def command(self, name: str, *settings: str) -> list[object]:
        job = self.work.job(
            name,
            model={"path": str(self.model), "replicate": True, "prepack": False},
            input=[str(self.prompts)],
            output=str(self.work.folder / name),
            generation={"ignore_eos": True},
            reproducible="layout",
            report={"peak": "off"},
        )
        return [BIN / "pecia", "run", job, "--fresh", *(word for each in settings for word in ("--set", each))]

    def limited(self, name: str, ranks: int, *settings: str) -> Line:
        run = Limited(self.work, ranks, self.limit)
        try:
            code, said = run.run(self.command(name, *settings))
            return {
                "bench": "bench_stages", "case": name, "ranks": ranks, "weight_bytes": self.weights,
                "limit_bytes": self.limit, "exit_code": code, "said": said,
                "peak_bytes": [group.peak_bytes() for group in run.groups],
                "own_bytes": [group.own_bytes for group in run.groups],
            }  # fmt: skip
        finally:
            run.close()

    def measure(self) -> list[Line]:
        staged = self.limited("staged", STAGES, f"parallel.pp={STAGES}")
        if staged["exit_code"] != 0:
            raise Failure(f"{STAGES} stages ended with {staged['exit_code']}; see {self.work.log}")
        alone = self.limited("alone", 1)
        if alone["exit_code"] == 0:
            raise Failure(f"one rank ran within {self.limit // MIB} MiB; see {self.work.log}")
        self.work.logged(*mpirun(1), *self.command("unlimited"))
        if answers(self.work.folder / "staged") != answers(self.work.folder / "unlimited"):
            raise Failure(f"stages answer otherwise than one rank; see {self.work.folder}")
        return [staged, alone]


def tables(lines: Sequence[Line]) -> None:
    rows = []
    for line in lines:
        ends = {0: "answers as one rank without a limit", REFUSED: "refused"}
        rows.append(
            [
                f"{line['ranks']}",
                f"{line['weight_bytes'] / MIB:.0f}",
                f"{line['limit_bytes'] / MIB:.0f}",
                ", ".join(f"{each / MIB:.0f}" for each in line["own_bytes"]),
                ", ".join(f"{each / MIB:.0f}" for each in line["peak_bytes"]),
                f"{line['weight_bytes'] / max(line['own_bytes']):.2f}" if line["exit_code"] == 0 else "–",
                ends.get(line["exit_code"], f"killed ({line['exit_code']})"),
            ]
        )
    heads = ("ranks", "weights MiB", "limit of a rank", "own memory", "with pages of files", "weights / most", "")
    show("Weights in stages", heads, rows)
    for line in lines:
        if line["exit_code"] == REFUSED:
            print(f"\nThe refusal: {line['said']}")


def main(arguments: list[str]) -> int:
    parser = bench_parser("stages", __doc__, "", rounds=0)
    parser.add_argument("--tiny", action="store_true", help="a model of 300 MB, as the tests take")
    parser.add_argument("--limit", type=positive, metavar="MIB", help="of a rank (default: a third of the weights)")
    parser.add_argument("--keep", action="store_true", help="keep the model's folder")
    options = parser.parse_args(arguments)
    work = Work("stages", options.json)
    work.build("pecia")
    on_this_machine()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    hosts_of_their_own(work.folder)
    shape = dict(TINY if options.tiny else SHAPE)
    work.note(f"a model of {shape['layers']} layers")
    model = bench_model("bench-stages", **shape)
    try:
        tables(work.keep(Stages(work, model, options.limit * MIB if options.limit else None).measure()))
    finally:
        if not options.keep:
            shutil.rmtree(ROOT / "models" / "bench-stages", ignore_errors=True)
    return 0
