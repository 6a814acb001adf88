# SPDX-License-Identifier: Apache-2.0
"""Whole runs of the program, on a tiny model and made-up prompts, in a temporary folder."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Optional

import h5py
import numpy as np

MPIEXEC = os.environ["PECIA_MPIEXEC"]
PROGRAM = Path(os.environ["PECIA_PROGRAM"])
# What ranks execute: the program, or what emulates its processor.
EXECUTABLES = {str(PROGRAM.resolve()), os.environ.get("PECIA_EMULATOR", "")}
SOURCE = Path(os.environ["PECIA_SOURCE"])
sys.path.insert(0, str(SOURCE / "scripts"))
MODEL = SOURCE / "tests" / "goldens" / "llama-gqa-fp32"
VOCAB: int = json.loads((MODEL / "config.json").read_text())["vocab_size"]
POSITIONS: int = json.loads((MODEL / "config.json").read_text())["max_position_embeddings"]

OPEN, PARTIAL, DONE, FAILED = range(4)
ALL_DONE, FAILURE, REFUSED, SOME_FAILED, DRAINED = 0, 1, 2, 3, 75

# Whether tests take all cases (label long) in place of a covering part of them.
ALL_CASES = "PECIA_FULL_MATRIX" in os.environ


def covering(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """All combinations of a value of each axis, where tests take all cases; else few of them, in which every two values
    of different axes meet."""
    combinations = list(itertools.product(*(range(len(axis)) for axis in axes)))
    if not ALL_CASES:
        pairs = {each: set(itertools.combinations(enumerate(each), 2)) for each in combinations}
        open_pairs = set().union(*pairs.values())
        chosen = []
        while open_pairs:
            chosen.append(max(combinations, key=lambda each: len(pairs[each] & open_pairs)))
            open_pairs -= pairs[chosen[-1]]
        combinations = sorted(chosen)
    return [tuple(axis[place] for axis, place in zip(axes, each)) for each in combinations]


LIMIT_S = 120.0  # of one run; they take a second or two, and longer beside other tests
MARK = "PECIA_TEST_JOB"
# When a rank has ended with another code than 0, mpirun waits two seconds before it kills the others, even if all have
# ended. Ranks that leave together pass a barrier before their end and need no such time.
LEAVE_TOGETHER = {"OMPI_MCA_odls_base_sigkill_timeout": "0"}


@dataclass
class Request:
    id: str
    turns: list[list[int]]
    max_new_tokens: Optional[list[int]] = None  # by turn
    arrival_s: Optional[float] = None
    stop: Optional[list[str]] = None  # by turn, as the shard has it: a JSON array, or ""
    shape: Optional[str] = None  # of every turn, as the shard has it


def random_draw() -> random.Random:
    """Other draws in each call of a test; the seed is printed, and PECIA_TEST_SEED sets it again."""
    seed = int(os.environ.get("PECIA_TEST_SEED", os.getpid()))
    print(f"PECIA_TEST_SEED={seed}", flush=True)
    return random.Random(seed)


def random_requests(
    count: int, shortest: int, longest: int, seed: int, every_second_turn: int = 0
) -> list[Request]:
    """Prompts of random tokens, the same for the same seed; every n-th request has a second turn."""
    draw = np.random.default_rng(seed)
    requests = []
    for index in range(count):
        two = every_second_turn > 0 and index % every_second_turn == 0
        lengths = draw.integers(shortest, longest + 1, size=2 if two else 1)
        turns = [draw.integers(3, VOCAB, size=length).tolist() for length in lengths]
        requests.append(Request(f"request-{index}", turns))
    return requests


def write_shard(path: Path, requests: Sequence[Request], followup: str = "chain") -> None:
    turns = [turn for request in requests for turn in request.turns]
    with h5py.File(path, "w") as file:
        file.attrs["schema"] = "pecia.prompts/1"
        file.attrs["vocab_size"] = VOCAB
        file.attrs["followup"] = followup
        file["tokens"] = np.array([token for turn in turns for token in turn], dtype=np.int32)
        file["turn_offsets"] = np.cumsum([0] + [len(turn) for turn in turns], dtype=np.int64)
        counts = [len(request.turns) for request in requests]
        file["request_offsets"] = np.cumsum([0, *counts], dtype=np.int64)
        ids = np.array([request.id.encode() for request in requests])
        file["request_id"] = ids.astype(h5py.string_dtype("utf-8", ids.dtype.itemsize))
        if any(request.max_new_tokens for request in requests):
            wanted = [count for request in requests for count in request.max_new_tokens or []]
            file["max_new_tokens"] = np.array(wanted, dtype=np.int32)
        if any(request.stop for request in requests):
            stop = [
                text for request in requests for text in request.stop or [""] * len(request.turns)
            ]
            file.create_dataset("stop", data=stop, dtype=h5py.string_dtype("utf-8"))
        if any(request.shape for request in requests):
            shapes = [request.shape or "" for request in requests for _ in request.turns]
            file.create_dataset("shape", data=shapes, dtype=h5py.string_dtype("utf-8"))
        if any(request.arrival_s is not None for request in requests):
            file["arrival_s"] = np.array([request.arrival_s for request in requests])


@dataclass
class Results:
    """All of results.h5, read at once."""

    columns: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Results:
        with h5py.File(path, "r", locking=False) as file:
            return cls({name: dataset[()] for name, dataset in file.items()})

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def rows(self, state: int) -> list[int]:
        return np.flatnonzero(self["state"] == state).tolist()

    def slots(self, row: int, name: str) -> np.ndarray:
        """What the row's output tokens have in a dataset by slot."""
        begin = self["slot_offsets"][row]
        return self[name][begin : begin + self["output_tokens"][row]]

    def tokens(self, row: int) -> list[int]:
        return self.slots(row, "tokens").tolist()

    def row_bytes(self, row: int) -> dict[str, bytes]:
        """The row in every dataset, as it is in the file."""
        found = {}
        for name, values in self.columns.items():
            offsets = "prompt_slot_offsets" if name.startswith("prompt_to") else "slot_offsets"
            if len(values) == len(self["state"]):
                found[name] = values[row].tobytes()
            elif not name.endswith("slot_offsets") and offsets in self.columns:
                found[name] = values[self[offsets][row] : self[offsets][row + 1]].tobytes()
        return found


def wait_for_state(path: Path, row: int, state: int) -> None:
    """Waits until the run has made its results and brought a row to a state."""
    wait_for(f"{path}", path.exists)
    with h5py.File(path, "r", locking=False) as file:
        offset = file["state"].id.get_offset()
    with path.open("rb") as file:
        wait_for(
            f"row {row} in state {state}",
            lambda: os.pread(file.fileno(), 1, offset + row) == bytes([state]),
        )


def wait_for(what: str, condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {limit_s} s in vain for {what}")
        time.sleep(0.0005)


class Launch:
    """A run under way: mpirun, or the program alone with 0 ranks, and all processes they start."""

    def __init__(
        self,
        arguments: Sequence[object],
        folder: Path,
        environment: dict[str, str],
        stdin: int = subprocess.DEVNULL,
    ):
        self.mark = f"{MARK}={uuid.uuid4().hex}"
        name, value = self.mark.split("=")
        self.out, self.err = (folder / f"{value}.{stream}" for stream in ("out", "err"))
        self.known_ranks: list[int] = []
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [str(argument) for argument in arguments],
                stdin=stdin,
                stdout=out,
                stderr=err,
                env={**os.environ, **environment, name: value},
                start_new_session=True,
            )

    def processes(self) -> list[int]:
        """Every living process of the launch, also those that lost their parent."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if self.mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:  # ended meanwhile, a zombie, or somebody else's
                continue
        return found

    def ranks(self) -> list[int]:
        """Processes of the program, by rank."""
        found = {}
        for process in self.processes():
            try:
                if os.readlink(f"/proc/{process}/exe") not in EXECUTABLES:
                    continue
                environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            ranks = [e for e in environment if e.startswith(b"OMPI_COMM_WORLD_RANK=")]
            found[int(ranks[0].split(b"=")[1]) if ranks else 0] = process
        self.known_ranks = [found[rank] for rank in sorted(found)]
        return self.known_ranks

    def signal_ranks(self, number: int, which: slice = slice(None)) -> None:
        for process in (self.known_ranks or self.ranks())[which]:
            os.kill(process, number)

    def kill(self) -> None:
        while processes := self.processes():
            for process in processes:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        self.process.wait()

    def wait(self, limit_s: float = LIMIT_S) -> int:
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {limit_s} s\n{self.words()}") from None

    def runs_for(self, seconds: float) -> bool:
        """Whether it is still running after so long."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def words(self) -> str:
        return self.err.read_text(errors="replace")


class RunTest(unittest.TestCase):
    """A temporary folder with prompts and job files, and runs of them."""

    _kept: ClassVar[dict[tuple[str, object], Results]] = {}
    program: ClassVar[Path] = PROGRAM  # what start() runs
    # Of fp32 sums of another order: some units of 6e-8 times the layers' few hundred terms.
    logprob_tolerance: ClassVar[float] = 1e-4

    def once(self, what: object, compute: Callable[[], Results]) -> Results:
        """Results that several tests of this file compare with: computed by the first test that asks."""
        key = (type(self).__module__, what)
        if key not in self._kept:
            self._kept[key] = compute()
        return self._kept[key]

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="pecia-run-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write_job(
        self,
        requests: Optional[Sequence[Request]] = None,
        name: str = "job",
        followup: str = "chain",
        **sections: Any,
    ) -> Path:
        """A job file of its own output folder. `sections` are those of job files, by key."""
        if requests is not None:
            write_shard(self.folder / f"{name}.h5", requests, followup)
        job = {
            "model": {"path": str(MODEL)},
            "input": [f"{name}.h5"],
            "output": f"{name}.run",
            "report": {"trace": "off", "progress": "off"},
        }
        for section, values in sections.items():
            old = job.get(section)
            job[section] = {**old, **values} if isinstance(old, dict) else values
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps(job), encoding="utf-8")  # JSON is YAML
        return path

    def output(self, job: Path) -> Path:
        return self.folder / json.loads(job.read_text())["output"]

    def results(self, job: Path) -> Results:
        return Results.read(self.output(job) / "results.h5")

    def report(self, job: Path) -> dict[str, Any]:
        return json.loads((self.output(job) / "report.json").read_text())

    def done(self, job: Path) -> int:
        """Rows done so far; the file may not be there yet."""
        path = self.output(job) / "results.h5"
        return len(Results.read(path).rows(DONE)) if path.exists() else 0

    def start(
        self,
        job: Path,
        ranks: int,
        *options: str,
        environment: Optional[dict[str, str]] = None,
        stdin: int = subprocess.DEVNULL,
        together: bool = False,
    ) -> Launch:
        """`together`: all ranks leave with the same code (LEAVE_TOGETHER)."""
        if together:
            environment = {**LEAVE_TOGETHER, **(environment or {})}
        command = [self.program, "run", job, *options, *one_ring(job, ranks, options)]
        if ranks > 0:
            command = [MPIEXEC, "-np", ranks, "--bind-to", "none", *command]
        return self.launch(command, environment, stdin)

    def launch(
        self,
        command: Sequence[object],
        environment: Optional[dict[str, str]] = None,
        stdin: int = subprocess.DEVNULL,
    ) -> Launch:
        launch = Launch(command, self.folder, environment or {}, stdin)
        self.addCleanup(launch.kill)
        return launch

    def run_job(self, job: Path, ranks: int, *options: str, expect: int = ALL_DONE) -> str:
        """Runs to the end; what it said."""
        together = expect in (REFUSED, SOME_FAILED, DRAINED)
        return self.end(self.start(job, ranks, *options, together=together), expect)

    def end(self, launch: Launch, expect: int) -> str:
        code = launch.wait()
        self.assertEqual(code, expect, launch.words())
        self.assertEqual(launch.out.read_text(), "", "a run prints nothing on stdout")
        return launch.words()

    def stop_in_the_prompt(self, job: Path, ranks: int, *options: str) -> str:
        """What the run said, which was asked to stop while it read a long prompt, after row 0 was done."""
        launch = self.start(job, ranks, *options, together=True)
        wait_for("all ranks", lambda: len(launch.ranks()) == max(ranks, 1))
        wait_for_state(self.output(job) / "results.h5", 0, DONE)
        self.compute_for(launch, 0.1)
        launch.signal_ranks(signal.SIGTERM)
        return self.end(launch, DRAINED)

    def compute_for(self, launch: Launch, seconds: float) -> None:
        begin = self.seconds_computed(launch)
        wait_for(
            f"{seconds} s of work",
            lambda: self.seconds_computed(launch) > begin + seconds,
        )

    def seconds_computed(self, launch: Launch) -> float:
        """CPU time of the first rank."""
        fields = Path(f"/proc/{launch.known_ranks[0]}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def assert_same_answers(self, found: Results, expected: Results, rows: Sequence[int]) -> None:
        """Same tokens; log-probabilities of fp32 sums in another order (a batch, a rank count)."""
        for row in rows:
            self.assertEqual(found.tokens(row), expected.tokens(row), f"tokens of row {row}")
            self.assertEqual(found["finish_reason"][row], expected["finish_reason"][row])
            np.testing.assert_allclose(
                found.slots(row, "token_logprob"),
                expected.slots(row, "token_logprob"),
                rtol=0,
                atol=self.logprob_tolerance,
                equal_nan=False,
            )

    def assert_same_bits(self, found: Results, expected: Results) -> None:
        """The same requests are done, with the same tokens and the bits of their log-probabilities."""
        rows = expected.rows(DONE)
        self.assertEqual(found.rows(DONE), rows)
        for row in rows:
            self.assertEqual(found.tokens(row), expected.tokens(row), f"tokens of row {row}")
            bits, wanted = (of.slots(row, "token_logprob").tobytes() for of in (found, expected))
            self.assertEqual(bits, wanted, f"log-probabilities of row {row}")


def one_ring(job: Path, ranks: int, options: Sequence[str]) -> list[str]:
    """Options that state what cp: auto leaves open. On a model as tiny as the tests' it would be
    elastic, and most tests are of a ring; tests/integration/test_elastic.py has the others."""
    try:
        parallel = json.loads(job.read_text()).get("parallel", {})
    except (OSError, ValueError, AttributeError):
        return []  # a test of what is refused
    if ranks < 2 or any("parallel." in option for option in options):
        return []
    stated = parallel.keys() & {"cp", "prefill", "ring", "decode", "shift_threshold"}
    others = [parallel.get(name, 1) for name in ("dp", "pp", "sp", "tp")]
    product = math.prod(others) if all(isinstance(degree, int) for degree in others) else 0
    if stated or product == 0 or ranks % product != 0:
        return []
    return ["--set", f"parallel.cp={ranks // product}"]


def limit_file_size(process: int, limit_bytes: int) -> None:
    """From now on the process cannot write beyond: a full disk as it looks to a sparse file."""
    resource.prlimit(process, resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
