# SPDX-License-Identifier: Apache-2.0
"""A run of pecia under mpirun that is timed from outside, and its ranks, which may be sent signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Optional

from ..command import UserError

LIMIT_S = 600.0  # of one wait; a run takes some seconds
PAUSE_S = 0.001  # between two looks
MARK = "PECIA_BENCH_JOB"  # in the environment of all that a launch starts
RANK_NAMES = (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK")  # Open MPI's, MPICH's


class LaunchedRun:
    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        self.program = Path(next(word for word in command if Path(word).name == "pecia")).resolve()
        self.mark = uuid.uuid4().hex
        with log.open("wb") as out:
            self.begun_unix_s = time.time()
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, MARK: self.mark},
                start_new_session=True,
            )

    def _processes(self) -> Iterator[tuple[int, dict[bytes, bytes]]]:
        mark = (MARK.encode(), self.mark.encode())
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "environ").read_bytes().split(b"\0")
            except OSError:  # ended meanwhile, or somebody else's
                continue
            environment = {
                name: value for name, _, value in (word.partition(b"=") for word in words)
            }
            if environment.get(mark[0]) == mark[1]:
                yield int(entry.name), environment

    def ranks(self) -> list[int]:
        """The program's living processes, by rank."""
        found = {}
        for process, environment in self._processes():
            try:
                if Path(os.readlink(f"/proc/{process}/exe")) != self.program:
                    continue
            except OSError:
                continue
            ranks = [environment[name] for name in RANK_NAMES if name in environment]
            found[int(ranks[0]) if ranks else 0] = process
        return [found[rank] for rank in sorted(found)]

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Of a run under way."""
        end = time.monotonic() + LIMIT_S
        while not condition():
            if self.process.poll() is not None:
                raise UserError(f"a run was over before {what}\n{self.words()[-2000:]}")
            if time.monotonic() > end:
                raise UserError(f"waited {LIMIT_S:.0f} s in vain for {what}; see {self.log}")
            time.sleep(PAUSE_S)

    def seconds_to_words(self, pattern: str, begun: float) -> float:
        """From `begun`, of time.monotonic, until the run says so, at the latest with its end."""
        while not re.search(pattern, self.words()):
            ended = self.process.poll() is not None
            if ended and not re.search(pattern, self.words()):
                raise UserError(f"a run ended and never said {pattern!r}; see {self.log}")
            if time.monotonic() - begun > LIMIT_S:
                raise UserError(f"a run did not say {pattern!r} in {LIMIT_S:.0f} s; see {self.log}")
            time.sleep(PAUSE_S)
        return time.monotonic() - begun

    def end(self, expected: Optional[int] = 0) -> float:
        """Waits for mpirun's end, and its exit code unless None; when that was, in seconds since 1970."""
        try:
            code = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise UserError(f"a run did not end in {LIMIT_S:.0f} s; see {self.log}") from None
        ended = time.time()
        if expected is not None and code != expected:
            raise UserError(
                f"a run ended with code {code}, not {expected}; its last words, of {self.log}:\n"
                f"{self.words()[-2000:]}"
            )
        return ended

    def words(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def clear(self) -> None:
        """Ends all that is left of it."""
        while left := [process for process, _ in self._processes()]:
            for process in left:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self.process.poll()
            time.sleep(PAUSE_S)
        self.process.wait()


@contextmanager
def launched(command: Sequence[str], log: Path) -> Iterator[LaunchedRun]:
    """Whatever happens, nothing of it is left afterwards."""
    run = LaunchedRun(command, log)
    try:
        yield run
    finally:
        run.clear()
