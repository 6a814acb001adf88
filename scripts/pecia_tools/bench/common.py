# SPDX-License-Identifier: Apache-2.0
"""What all measurements share: options, programs that are built and run, lines of JSON, and tables."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional, Union

import h5py
import numpy as np

from ..command import Failure, UserError, note
from . import model, trace_prompts

ROOT = Path(__file__).resolve().parents[3]
BIN = ROOT / "build" / "release" / "bin"
BENCH = BIN / "pecia-bench"
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct"
# Of SmolLM2-135M's shape.
SHAPE_135M = {"layers": 30, "hidden": 576, "heads": 9, "kv-heads": 3, "ffn": 1536, "vocab": 49152}
SHAPE_TINY = {"layers": 1, "hidden": 32, "heads": 2, "kv-heads": 1, "head-dim": 16, "ffn": 64, "vocab": 256}
INSIDE = "PECIA_BENCH_INSIDE"  # in the environment of what runs in the shaped network
SERVERS = ("n1", "n2", "n3", "n4")  # there; the first two are in one rack
LAST_WORDS = 2000  # characters of a log that an error shows

Line = dict[str, Any]


def lengths(text: str) -> list[int]:
    """The numbers of "512,2048", in ascending order."""
    words = [word for word in text.split(",") if word]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of token counts as 512,2048")
    return sorted({int(word) for word in words})


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def cores() -> int:
    """Physical ones that this process may use: two threads of one core make neither faster."""
    siblings = set()
    for cpu in os.sched_getaffinity(0):
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        siblings.add(topology.read_text() if topology.is_file() else str(cpu))
    return len(siblings)


def bench_parser(
    name: str,
    description: Optional[str],
    example: str,
    *,
    rounds: int = 3,
    where: Sequence[str] = (),
    json: bool = True,
) -> argparse.ArgumentParser:
    """--rounds unless 0, --json, and the places of which one has to be named."""
    parser = argparse.ArgumentParser(
        prog=f"bench {name}",
        description=description,
        epilog=f"example: scripts/bench {name} {example}".rstrip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    if where:
        add("where", choices=where)
    if rounds:
        add("--rounds", type=positive, default=rounds, help="default: %(default)s")
    if json:
        file = f"runs/bench-{name}{'-WHERE' if where else ''}.jsonl"
        add("--json", type=Path, metavar="FILE", help=f"JSON lines are appended to it (default: {file})")
    return parser


def model_parser(name: str, description: Optional[str], example: str) -> argparse.ArgumentParser:
    """The same with --model and --threads."""
    parser = bench_parser(name, description, example)
    parser.add_argument(
        "--model",
        type=Path,
        default=MODEL,
        help="a Hugging Face folder (default: SmolLM2-135M-Instruct as quickstart.sh gets it)",
    )
    parser.add_argument("--threads", type=positive, default=cores(), help="default: the cores, here %(default)s")
    return parser


def read(path: Path) -> list[Line]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


def append(path: Path, lines: Iterable[Line]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def show(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        return
    print(f"\n{title}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def write_prompts(path: Path, tokens: np.ndarray, lengths: Sequence[int], **columns: np.ndarray) -> None:
    """A shard of requests of one turn each, whose tokens follow one another; `columns` are datasets of the turns."""
    with h5py.File(path, "w") as file:
        file.attrs["schema"] = "pecia.prompts/1"
        file["tokens"] = tokens.astype(np.int32)
        file["turn_offsets"] = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        file["request_offsets"] = np.arange(len(lengths) + 1, dtype=np.int64)
        file["request_id"] = np.array([b"prompt-%d" % row for row in range(len(lengths))])
        for name, values in columns.items():
            file[name] = values


def load() -> str:
    return f"load {os.getloadavg()[0]:.2f}"


def on_this_machine() -> None:
    """For mpirun, which else counts cores and refuses root."""
    os.environ.update(OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_mpi_yield_when_idle="1")
    if os.geteuid() == 0:
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def needs_root(where: str) -> None:
    if os.geteuid() != 0:
        raise UserError(f"{where} needs root: it makes network namespaces. Nothing was done")


def enter_network(where: str, node_mbit: int, rack_mbit: int) -> None:
    """Begins the command anew where mpirun reaches SERVERS over links of this speed; there it goes on."""
    needs_root(where)
    if INSIDE in os.environ:
        return
    os.environ[INSIDE] = "yes"
    shaped = str(Path(__file__).with_name("shaped_network.sh"))
    again = [sys.executable, "-m", "pecia_tools.bench", *sys.argv[1:]]
    os.execv(shaped, [shaped, str(node_mbit), str(rack_mbit), *again])


def mpirun(ranks: int, hosts: str = "") -> list[object]:
    """`hosts` "" is this machine."""
    return ["mpirun", "-np", ranks, *(["-H", hosts] if hosts else []), "--bind-to", "none"]


def threads_of_ranks(threads: int) -> dict[str, str]:
    """0: as many as the environment says."""
    return {"OMP_NUM_THREADS": str(threads)} if threads else {}


class Work:
    """The folder runs/bench-NAME, its log, and the lines of this call, which are also appended to a file."""

    def __init__(self, name: str, json_file: Optional[Path] = None, fresh: bool = True) -> None:
        self.name = f"bench {name}"
        self.folder = ROOT / "runs" / f"bench-{name}"
        self.log = self.folder / "log"
        self.json = json_file or ROOT / "runs" / f"bench-{name}.jsonl"
        self.lines: list[Line] = []
        if fresh:
            shutil.rmtree(self.folder, ignore_errors=True)
        for folder in (self.folder, self.json.parent):
            folder.mkdir(parents=True, exist_ok=True)

    def note(self, text: str) -> None:
        note(self.name, text)

    def rounds(self, count: int) -> Iterator[int]:
        for number in range(1, count + 1):
            self.note(f"round {number} of {count}, {load()}")
            yield number
        self.note(f"done, {load()}")

    def keep(self, lines: Sequence[Line], **more: Any) -> list[Line]:
        self.lines += lines
        append(self.json, ({**more, **line} for line in lines))
        return list(lines)

    def logged(
        self,
        *command: object,
        env: Mapping[str, str] = MappingProxyType({}),
        codes: Sequence[int] = (0,),
        out: Optional[Path] = None,
    ) -> int:
        """Its exit code. What it says goes to the log, what it prints to `out`; a failure shows the log's end."""
        words = [str(word) for word in command]
        with self.log.open("ab") as log, (out or self.log).open("ab") as printed:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=log,
                env={**os.environ, **env},
                check=False,
            )
        if done.returncode not in codes:
            said = self.log.read_text(errors="replace")[-LAST_WORDS:]
            raise Failure(
                f"{said}\nthis failed: {' '.join(words)} (code {done.returncode}); the whole output is in {self.log}"
            )
        return done.returncode

    def build(self, *targets: str, tree: Path = ROOT) -> None:
        """Those programs of the release preset."""
        self.note(f"building {tree if tree != ROOT else ''}".rstrip())
        tests = ("-DPECIA_BUILD_TESTS=OFF",) if tree != ROOT else ()
        self.logged("cmake", "--preset", "release", "-S", tree, *tests)
        self.logged("cmake", "--build", tree / "build" / "release", "--target", *targets)

    def bench(self, ranks: int, name: str, *words: object, hosts: str = "", threads: int = 0) -> list[Line]:
        """The lines of `pecia-bench NAME`."""
        lines = self.folder / "lines.jsonl"
        lines.unlink(missing_ok=True)
        launch = mpirun(ranks, hosts) if ranks > 1 or hosts else []
        self.logged(*launch, BENCH, name, *words, "--json", lines, env=threads_of_ranks(threads))
        return read(lines)

    def run(self, ranks: int, job: Path, settings: Sequence[str], hosts: str = "", threads: int = 0) -> Path:
        """Runs a job from the beginning; its report."""
        chosen = [word for setting in settings for word in ("--set", setting)]
        command = (*mpirun(ranks, hosts), BIN / "pecia", "run", job, "--fresh", *chosen)
        self.logged(*command, env=threads_of_ranks(threads))
        output = next(setting for setting in reversed(settings) if setting.startswith("output="))
        return Path(output.partition("=")[2]) / "report.json"

    def job(self, name: str, **values: Any) -> Path:
        path = self.folder / f"{name}.json"  # JSON is YAML
        path.write_text(json.dumps(values), encoding="utf-8")
        return path

    def prompts(self, name: str, *words: object) -> Path:
        """A shard that make-trace-prompts makes."""
        path = self.folder / f"{name}.h5"
        trace_prompts.main([*map(str, words), "--force", "--output", str(path)])
        return path


def bench_model(name: str, **shape: Union[int, str]) -> Path:
    folder = ROOT / "models" / name
    model.main([str(folder), *(f"--{key.replace('_', '-')}={value}" for key, value in shape.items())])
    return folder
