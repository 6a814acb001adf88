# SPDX-License-Identifier: Apache-2.0
"""bench-writers: what it costs that many replicas write results into one file. A simulation: processes make the
system calls by which a replica writes rows (lib/io/results.cpp) into a file of columns, all into one file or each into
its own.

A row is a pwrite for each column at the row's place, fdatasync, a pwrite of its state, and fdatasync. Each process
writes rows that other processes' rows lie between, as replicas do that take requests from one list. Prints a table of
rows per second. It says nothing of network file systems unless FOLDER is on one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

from .bench_common import lengths, positive
from .command import note, run
from .modes_report import show

PROGRAM = "bench-writers"
# Bytes of an element of each column that a row writes besides its tokens, and of /state.
COLUMNS = (4, 4, 4, 4, 1, 8, 256, 4, 4, 4, 4, 4, 4, 4, 64, 4)
STATE = 1
TOKEN_COLUMNS = (4, 4)  # token, log-probability


def columns(answer: int) -> list[int]:
    return [*(size * answer for size in TOKEN_COLUMNS), *COLUMNS]


def make_file(path: Path, rows: int, answer: int) -> None:
    """Full size, never filled, as the results are."""
    with path.open("wb") as file:
        file.truncate(rows * (sum(columns(answer)) + STATE))


def write_rows(path: Path, rows: int, mine: range, answer: int, start: Barrier) -> None:
    sizes = columns(answer)
    begins = [rows * sum(sizes[:at]) for at in range(len(sizes) + 1)]
    content = [os.urandom(size) for size in sizes]
    file = os.open(path, os.O_RDWR)
    start.wait()
    for row in mine:
        for begin, size, data in zip(begins, sizes, content):
            os.pwrite(file, data, begin + row * size)
        os.fdatasync(file)
        os.pwrite(file, b"\2", begins[-1] + row * STATE)
        os.fdatasync(file)
    start.wait()
    os.close(file)


def rows_per_second(folder: Path, writers: int, each: int, answer: int, one_file: bool) -> float:
    rows = writers * each
    start = multiprocessing.Barrier(writers + 1)
    processes = []
    for writer in range(writers):
        path = folder / ("one" if one_file else f"of-{writer}")
        if writer == 0 or not one_file:
            make_file(path, rows if one_file else each, answer)
        mine = range(writer, rows, writers) if one_file else range(each)
        arguments = (path, rows if one_file else each, mine, answer, start)
        processes.append(multiprocessing.Process(target=write_rows, args=arguments))
    for process in processes:
        process.start()
    start.wait()
    begin = time.perf_counter()
    start.wait()
    seconds = time.perf_counter() - begin
    for process in processes:
        process.join()
    return rows / seconds


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=__doc__,
        epilog=f"example: scripts/{PROGRAM} --writers 1,64 /scratch",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("folder", type=Path, nargs="?", default=Path("."), help="where to write (default: here)")
    add("--writers", type=lengths, default="1,16,64,256", help="default: %(default)s")
    add("--rows", type=positive, default=20, help="of each writer (default: %(default)s)")
    add("--answer", type=positive, default=256, help="tokens of a row (default: %(default)s)")
    add("--rounds", type=positive, default=3, help="default: %(default)s")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    found: dict[tuple[int, bool], list[float]] = {}
    for number in range(options.rounds):
        for writers in options.writers:
            for one_file in (True, False):
                note(PROGRAM, f"round {number + 1} of {options.rounds}, {writers} writers")
                folder = Path(tempfile.mkdtemp(prefix=".bench-writers-", dir=options.folder))
                try:
                    speed = rows_per_second(folder, writers, options.rows, options.answer, one_file)
                finally:
                    shutil.rmtree(folder)
                found.setdefault((writers, one_file), []).append(speed)
    rows = []
    for writers in options.writers:
        one, own = (statistics.median(found[writers, one_file]) for one_file in (True, False))
        rows.append([str(writers), f"{one:.0f}", f"{own:.0f}", f"{1e3 * writers / one:.1f}"])
    heads = ("writers", "rows/s, one file", "rows/s, a file each", "ms of a row, one file")
    show(f"Rows of {options.answer} tokens, {options.rows} of each writer", heads, rows)
    return 0


if __name__ == "__main__":
    run(PROGRAM, main)
