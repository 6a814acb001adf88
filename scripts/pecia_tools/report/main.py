# SPDX-License-Identifier: Apache-2.0
"""pecia-report: a run folder, or a file of pecia tune or pecia plan, as one HTML page, and its figures as PNGs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ..command import UserError, note, run, temporary_file
from ..options import add_version
from ..runs.folder import read_run
from ..runs.trace import read_trace

PROGRAM = "pecia-report"


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Show a run, also one that goes on or was killed, what pecia tune measured, or what pecia plan "
        "foresees, as one HTML page that needs no network. An earlier page is replaced.",
        epilog="example: pecia-report runs/books --png figures/",
    )
    parser.add_argument(
        "run",
        type=Path,
        metavar="RUN_DIR",
        help="a run folder, the `output` of its job file; a tuned.json; or what pecia plan --cluster --json or "
        "pecia plan --papers --json wrote",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE",
        help="the page (default: RUN_DIR/report.html, or NAME.html beside NAME.json)"
    )
    parser.add_argument(
        "--png", type=Path, metavar="DIR", help="also write each figure as DIR/NAME.png"
    )
    add_version(parser)
    return parser


def read_document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: {error}; name a run folder, or a file that pecia tune or pecia plan --json wrote"
        ) from None
    return document if isinstance(document, dict) else {}


def main(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    from . import page as report_page
    from . import (
        papers_page,
        plan_page,
        tuned_page,  # they draw: --help does without
    )

    if options.run.is_file():
        document = read_document(options.run)
        page, check = {
            "pecia.plan": (plan_page, plan_page.check_plan),
            "pecia.papers": (papers_page, papers_page.check_papers),
        }.get(str(document.get("schema")).split("/")[0], (tuned_page, tuned_page.check_tuned))
        check(options.run, document)
        found = page.sections(document)
        text = page.render(options.run, document, found)
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


def script() -> None:
    run(PROGRAM, main)


if __name__ == "__main__":
    script()
