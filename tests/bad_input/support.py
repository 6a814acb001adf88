# SPDX-License-Identifier: Apache-2.0
"""A small good job to break, and what a refusal must look like."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
import unittest
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

import h5py
import numpy as np

PECIA = os.environ["PECIA_COMMAND"]
MPIEXEC = os.environ["PECIA_MPIEXEC"].split()
GOLDENS = Path(__file__).resolve().parent.parent / "goldens"
VOCAB = 96  # of llama-mqa
LIMIT_S = 20  # "ends quickly", on a busy machine
LIMIT_BYTES = 2 << 30

PARTIAL, DONE, FAILED = 1, 2, 3  # /state of results
# A process alone needs no daemon of Open MPI and no transports: it starts in a tenth of the time.
ALONE = {
    "OMPI_MCA_ess_singleton_isolated": "1",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self",
    "OMPI_MCA_osc": "^ucx",
    "OMP_NUM_THREADS": "1",
}


class Ended:
    """A command that has ended: its exit code, what it said, how long it took."""

    def __init__(self, code: int, out: str, err: str, seconds: float) -> None:
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    def __str__(self) -> str:
        shown = self.err if len(self.err) < 4000 else self.err[:4000] + "…"
        return f"exit code {self.code} after {self.seconds:.1f} s\n{self.out[:2000]}{shown}"


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def command(
    *arguments: object,
    ranks: int = 1,
    prepare: Optional[Callable[[], None]] = None,
) -> Ended:
    """Runs pecia; subprocess.TimeoutExpired after LIMIT_S."""
    start = [*MPIEXEC, str(ranks), "--bind-to", "none"] if ranks > 1 else []
    begin = time.monotonic()
    # Processes without a daemon would share, and remove, one session folder.
    with tempfile.TemporaryDirectory() as session:
        alone = {**ALONE, "OMPI_MCA_orte_tmpdir_base": session}
        done = subprocess.run(
            [*start, PECIA, *map(os.fspath, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_S,
            preexec_fn=prepare,
            env={**os.environ, **(alone if ranks == 1 else {})},
            check=False,
        )
    return Ended(
        done.returncode,
        done.stdout.decode(errors="replace"),
        done.stderr.decode(errors="replace"),
        time.monotonic() - begin,
    )


def snapshot(folder: Path) -> dict[str, Any]:
    """Every path under the folder, with the bytes of what is a file."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        if path.is_file() and path.stat().st_size < 10_000_000
        else path.lstat().st_size
        for path in folder.rglob("*")
        if not path.is_dir()
    } | {str(path.relative_to(folder)) + "/": "folder" for path in folder.rglob("*") if path.is_dir()}


def write_shard(
    path: Path,
    requests: Sequence[tuple[str, Sequence[Sequence[int]]]],
    attributes: Optional[dict[str, Any]] = None,
    **datasets: Any,
) -> Path:
    """A prompt shard of (id, turns); `datasets` replaces or adds some, None leaves one out."""
    turns = [turn for _, request in requests for turn in request]
    content: dict[str, Any] = {
        "tokens": np.array([token for turn in turns for token in turn], dtype=np.int32),
        "turn_offsets": np.cumsum([0] + [len(turn) for turn in turns]).astype(np.int64),
        "request_offsets": np.cumsum([0] + [len(r) for _, r in requests]).astype(np.int64),
        "request_id": np.array([name.encode() for name, _ in requests], dtype="S16"),
    }
    content.update(datasets)
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.attrs["schema"] = "pecia.prompts/1"
        for name, value in (attributes or {}).items():
            file.attrs[name] = value
        for name, value in content.items():
            if value is not None:
                file[name] = value
    return path


def prompt(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(3, VOCAB, length).tolist()


GOOD_REQUESTS = [("first", [prompt(12, 1), prompt(5, 2)]), ("second", [prompt(30, 3)])]
GOOD_JOB: dict[str, Any] = {
    "model": {"path": "model"},
    "input": ["prompts/*.h5"],
    "output": "run",
    "generation": {"max_new_tokens": 3},
    "report": {"trace": "off"},
}


class BadInputTest(unittest.TestCase):
    """Each test has a folder with job.yaml, model/ and prompts/a.h5, good until the test breaks it."""

    checkpoint = "llama-mqa"

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.model = self.folder / "model"
        shutil.copytree(GOLDENS / self.checkpoint, self.model)
        self.shard = write_shard(self.folder / "prompts/a.h5", GOOD_REQUESTS)
        self.job = self.folder / "job.yaml"
        self.write_job(GOOD_JOB)

    def write_job(self, job: dict[str, Any]) -> None:
        self.job.write_text(json.dumps(job), encoding="utf-8")

    def run_job(
        self, *arguments: object, ranks: int = 1, prepare: Optional[Callable[[], None]] = None
    ) -> Ended:
        return command("run", self.job, *arguments, ranks=ranks, prepare=prepare)

    def assert_refused(self, *parts: str, arguments: Sequence[object] = (), ranks: int = 1) -> Ended:
        """
        Exit code 2, one message that has all the parts, nothing written: neither the output folder nor
        anything else in the test's folder.
        """
        before = snapshot(self.folder)
        ended = self.run_job(*arguments, ranks=ranks)
        self.assert_refusal(ended, *parts)
        self.assertEqual(before, snapshot(self.folder), "files were changed")
        return ended

    def assert_refusal(self, ended: Ended, *parts: str) -> None:
        self.assertEqual(ended.code, 2, ended)
        self.assertEqual(ended.out, "", ended)
        self.assertEqual(len(re.findall(r"^pecia: ", ended.err, re.MULTILINE)), 1, ended)
        self.assertLess(len(ended.err), 4000, ended)
        for part in parts:
            self.assertIn(part, ended.err)
        self.assertEqual(ended.err.count(parts[0]), 1, f"said more than once: {ended}")

    def set(self, *assignments: str) -> list[str]:
        return [word for assignment in assignments for word in ("--set", assignment)]
