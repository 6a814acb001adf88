# SPDX-License-Identifier: Apache-2.0
"""The run of pecia-summarize's rounds. One process has them all, so the model is loaded once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Optional

from ..command import UserError, note, temporary_file
from ..model_folder import ModelFolder
from .job import SECTION

PROGRAM = "pecia-summarize"
DRAINED = 75
ENDED_WELL = (0, 3)  # exit codes of a run that was not interrupted
SHARD, JOB, RUN = "prompts.h5", "job.json", "run"


class Drained(Exception):
    """The run was told to end; the same command continues it."""


class Runner:
    """Starts `pecia run --rounds` with the first round, and asks the same process for the later ones."""

    def __init__(
        self,
        launch: Sequence[str],  # what starts the ranks
        pecia: Path,
        settings: Sequence[str],  # KEY=VALUE
        job: Optional[Path],  # the user's, which has other keys of the runs; None: a round makes its own
        model: ModelFolder,
    ) -> None:
        self._launch, self._pecia, self._settings, self._job = launch, pecia, settings, job
        self._model = str(model.path.resolve())
        self._process: Optional[subprocess.Popen[str]] = None
        self._is_interrupted = False

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, kind: Optional[type], error: Any, trace: Optional[TracebackType]) -> None:
        if self._process is not None:
            self._end()

    def run(self, folder: Path) -> int:
        """The exit code of the round in `folder`, or of a process that has failed in it. Raises Drained after an
        interrupt, also where the round has just ended."""
        was_there = self._process is not None
        if not was_there or not self._ask(folder):
            self._start(folder)
        code = self._end_of_round(folder)
        if self._is_interrupted:
            raise Drained
        if code is not None:
            return code
        code = self._end()
        if was_there and code in ENDED_WELL:  # it has not seen the round: its launcher passes no input on
            return self.run(folder)
        return code

    def _command(self, folder: Path) -> list[str]:
        settings = list(self._settings)
        job = self._job
        if job is None:
            job = folder / JOB
        else:
            paths = {key: json.dumps(value) for key, value in _paths(folder).items()}
            settings += [f"{SECTION}=off", f"model.path={json.dumps(self._model)}"]
            settings += [f"{key}={value}" for key, value in paths.items()]
        words = [word for setting in settings for word in ("--set", setting)]
        return [*self._launch, str(self._pecia), "run", str(job), "--rounds", *words]

    def _write_job(self, folder: Path) -> None:
        """By which the round can be run again by hand."""
        keys = {"model": {"path": self._model}, "input": [SHARD], "output": RUN}
        with temporary_file(folder / JOB) as temporary:
            temporary.write_text(json.dumps(keys, indent=1) + "\n", encoding="utf-8")

    def _start(self, folder: Path) -> None:
        command = self._command(folder)
        if self._job is None:
            self._write_job(folder)
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        except OSError as error:
            raise UserError(f"{command[0]}: cannot be started ({error.strerror})") from error

    def _ask(self, folder: Path) -> bool:
        """Asks the process for a round; False: it has ended."""
        assert self._process is not None and self._process.stdin is not None
        if self._job is None:
            self._write_job(folder)
        try:
            print(json.dumps(_paths(folder)), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            self._end()
            return False
        return True

    def _end_of_round(self, folder: Path) -> Optional[int]:
        """The round's exit code once it has ended; None: the process has ended before."""
        while line := self._read_line():
            told = _exit_code(line, folder)
            if told is not None:
                return told
            note(PROGRAM, line.rstrip("\n"))  # of a launcher
        return None

    def _read_line(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        try:
            return self._process.stdout.readline()
        except KeyboardInterrupt:  # the ranks were interrupted as well, and drain
            self._is_interrupted = True
            return self._process.stdout.readline()

    def _end(self) -> int:
        """Lets the process end, and waits for it. Its exit code."""
        assert self._process is not None
        process, self._process = self._process, None
        process.communicate()
        return process.returncode


def _paths(folder: Path) -> dict[str, Any]:
    return {"input": [str((folder / SHARD).resolve())], "output": str((folder / RUN).resolve())}


def _exit_code(line: str, folder: Path) -> Optional[int]:
    """None: the line does not say how this round has ended."""
    try:
        told = json.loads(line)
        is_this = Path(told["output"]).resolve() == (folder / RUN).resolve()
        return int(told["exit_code"]) if is_this else None
    except (ValueError, TypeError, KeyError):
        return None
