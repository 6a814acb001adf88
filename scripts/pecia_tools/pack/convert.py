# SPDX-License-Identifier: Apache-2.0
"""Books to text: many files at a time, each in one of several processes, so that a bad one stops no other."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import signal
import tempfile
import zipfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from pathlib import Path
from typing import Callable, Optional

from ..command import Failure, UserError
from .decoding import BadInput, Decoder
from .inputs import Document, InputFile, too_large
from .limits import machine_bytes, memory_limit
from .structure import StructuredText
from .text_builder import Unreadable

ARCHIVES = ("epub", "docx")
LIMIT_S = 600  # for one file
LIMIT_BYTES = 8 << 30  # of memory for one file, where the machine has twice as much
DIED = "the process that read it ended without an answer: the file is damaged, or needs more memory or time"


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Conversions:
    """What the files of CONVERTED formats became, kept in a temporary folder while a pack lasts."""

    def __init__(
        self,
        decoder: Decoder,
        num_processes: int,
        limit_s: int = LIMIT_S,
        limit_bytes: Optional[int] = None,
    ) -> None:
        self._decoder = decoder
        self._num_processes = num_processes
        self._limit_s = limit_s
        self._limit_bytes = limit_bytes or min(LIMIT_BYTES, machine_bytes() // 2)
        self._folder = tempfile.TemporaryDirectory(prefix="pecia-pack.")
        self._places: dict[Path, Path] = {}
        self._problems: dict[Path, str] = {}
        self.notes: dict[Path, tuple[str, ...]] = {}

    def __enter__(self) -> Conversions:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def run(self, files: Sequence[InputFile], progress: Callable[[int], object]) -> None:
        """Reads all files. `progress` is told the bytes of each one that is done. Where a process dies, or is ended by
        the limit, the files that were begun are read once more, each in a process of its own, to find out which of them
        it was; then the others go on."""
        for number, file in enumerate(files):
            self._places[file.path] = Path(self._folder.name, str(number))
        left = list({file.path: file for file in files}.values())
        while left:
            unfinished = self._read(left, self._num_processes, progress)
            begun = [file for file in unfinished if _mark(self._places[file.path]).exists()]
            if unfinished and not begun:
                raise Failure("the processes that read books cannot be started; see above")
            for file in begun:
                if self._read([file], 1, progress):
                    self._problems[file.path] = DIED
                    progress(file.size_bytes)
            left = [file for file in unfinished if file not in begun]

    def document(self, file: InputFile) -> Document:
        """Raises BadInput where the file could not be read."""
        if file.path in self._problems:
            raise BadInput(str(file.path), self._problems[file.path])
        found: StructuredText = pickle.loads(self._places[file.path].read_bytes())
        return Document(file.name, found.text, str(file.path), structure=found.structure)

    def _read(
        self, files: Sequence[InputFile], num_processes: int, progress: Callable[[int], object]
    ) -> list[InputFile]:
        """Returns the files that were not finished because a process died."""
        unfinished = []
        workers = min(num_processes, len(files))
        # No fork: the threads of the tokenizer and of HDF5 would be missing in the children.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            jobs = {
                pool.submit(
                    convert_to,
                    self._places[file.path],
                    file.loaded(),
                    self._decoder.encoding,
                    self._decoder.replaces,
                    self._limit_s,
                    self._limit_bytes,
                ): file
                for file in files
            }
            for job in as_completed(jobs):
                file = jobs[job]
                try:
                    problem, notes = job.result()
                except BrokenProcessPool:
                    unfinished.append(file)
                    continue
                if problem is not None:
                    self._problems[file.path] = problem
                elif notes:
                    self.notes[file.path] = notes
                progress(file.size_bytes)
        return sorted(unfinished, key=files.index)


def convert_to(
    place: Path,
    file: InputFile,
    encoding: str,
    replaces: bool,
    limit_s: int,
    limit_bytes: int,
) -> tuple[Optional[str], tuple[str, ...]]:
    """Runs in a process of its own and writes what it read to `place`. Returns what is wrong with the file, or None,
    and notes of the reading. The process ends where it takes longer than the limit, and may do so where it needs more
    memory than the other one."""
    _mark(place).touch()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(limit_s)
    try:
        with memory_limit(limit_bytes):
            found = convert(file, Decoder(encoding, replaces))
    except (BadInput, Unreadable) as error:
        return (error.reason if isinstance(error, BadInput) else str(error)), ()
    except OSError as error:
        return f"cannot be read ({error.strerror or error})", ()
    except MemoryError:
        return f"needs more than {limit_bytes >> 20} MiB of memory to be read", ()
    except UserError:
        raise
    except Exception as error:  # whatever a library makes of a damaged file
        return f"cannot be read as {file.kind.upper()}: {type(error).__name__}: {error}", ()
    finally:
        signal.alarm(0)
    place.write_bytes(pickle.dumps(found))
    return None, found.notes


def _mark(place: Path) -> Path:
    """It is there once somebody has begun to read the file."""
    return place.with_suffix(".begun")


def convert(file: InputFile, decoder: Decoder) -> StructuredText:
    """The file's text and structure. Raises Unreadable, BadInput, OSError, or what a library raises."""
    data = file.read()
    if file.kind in ARCHIVES:
        _check_archive(data, file.max_bytes)
    found = import_module(f".read_{file.kind}", __package__).read(data, decoder)
    replaced = sum(decoder.repairs.replaced_bytes.values())
    if not replaced:
        return found
    note = f"replaced {replaced} bytes that are no text, or NUL"
    return StructuredText(found.text, found.structure, (*found.notes, note))


def _check_archive(data: bytes, max_bytes: int) -> None:
    """By the sizes that it names itself: a reader takes no more than these from a member."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except zipfile.BadZipFile:
        return  # the reader says so
    if size > max_bytes:
        raise Unreadable(too_large(max_bytes, f" ({len(data)} become {size})"))
