# SPDX-License-Identifier: Apache-2.0
"""pecia-report: a run folder, or a file of pecia tune, as one HTML page, and its figures as PNGs."""

from __future__ import annotations

import argparse
from pathlib import Path

from .command import note, run, temporary_file
from .read_run import read_run
from .read_trace import read_trace

PROGRAM = "pecia-report"


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Show a run, also one that goes on or was killed, or what pecia tune measured, as one HTML page "
        "that needs no network. An earlier page is replaced.",
        epilog="example: pecia-report runs/books --png figures/",
    )
    parser.add_argument(
        "run",
        type=Path,
        metavar="RUN_DIR",
        help="a run folder, the `output` of its job file; or a tuned.json",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the page (default: RUN_DIR/report.html, or tuned.html beside tuned.json)"
    )
    parser.add_argument(
        "--png", type=Path, metavar="DIR", help="also write each figure as DIR/NAME.png"
    )
    return parser


def main(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    from . import report_page, tuned_page  # they draw: --help does without

    if options.run.is_file():
        tuned = tuned_page.read_tuned(options.run)
        found = tuned_page.sections(tuned)
        text = tuned_page.render(options.run, tuned, found)
        path = options.output or options.run.with_suffix(".html")
    else:
        folder = read_run(options.run)
        ranks = len(folder.report.ranks) if folder.report else None
        found = report_page.sections(folder, read_trace(options.run / "trace", ranks))
        text = report_page.render(folder, found)
        path = options.output or options.run / "report.html"
    if options.png:
        written = report_page.write_pngs(found, options.png)
        note(PROGRAM, f"{written} figures → {options.png}")
    with temporary_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    note(PROGRAM, f"{path}, {path.stat().st_size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    run(PROGRAM, main)
