# SPDX-License-Identifier: Apache-2.0
"""make-report-picture: the top of a run's page as one small PNG, which the README shows.

The page itself is HTML (pecia-report); this draws its headline numbers and figures with matplotlib alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..command import UserError, note, run, temporary_file
from ..runs.folder import read_run
from ..runs.trace import read_trace

PROGRAM = "make-report-picture"
SHOWN = ("throughput", "latency", "timeline", "layer")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Draw the headline numbers of a run and its figures "
        f"({', '.join(SHOWN)}) as one PNG. The figure of one layer takes report.trace=full.",
        epilog=f"example: scripts/{PROGRAM} runs/quickstart -o apps/report.png",
    )
    parser.add_argument(
        "run", type=Path, metavar="RUN_DIR", help="a run folder, the `output` of its job file"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", required=True, help="the PNG; replaced"
    )
    return parser


def main(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    from ..report.poster import poster  # draws: --help does without

    folder = read_run(options.run)
    trace = read_trace(options.run / "trace", len(folder.report.ranks) if folder.report else None)
    small = poster(folder, trace, SHOWN)
    if small is None:
        raise UserError(f"{options.run}: has nothing to draw yet; wait until a turn is answered")
    with temporary_file(options.output) as temporary:
        small.save(temporary, format="png", optimize=True)
    note(
        PROGRAM,
        f"{options.output}, {small.width} × {small.height}, {options.output.stat().st_size / 1e3:.0f} kB",
    )
    return 0


if __name__ == "__main__":
    run(PROGRAM, main)
