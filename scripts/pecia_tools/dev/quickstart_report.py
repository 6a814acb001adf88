# SPDX-License-Identifier: Apache-2.0
"""quickstart_report RUN_DIR: how fast the run was and where its files lie, in a few lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..command import UserError, run
from ..model_folder import read_json

PROGRAM = "quickstart"
PLACES = {
    "text/": "the summaries",
    "results.h5": "tokens, log-probabilities and times of every request",
    "report.json": "machine, modes, speeds, communication",
    "prompts.h5": "the packed documents",
}


def speed_line(report: dict[str, Any]) -> str:
    counts, phases = report["counts"], report["phases"]
    speeds = [
        f"{name} {phase['tokens_per_s']:.0f} tokens/s"
        for name, phase in phases.items()
        if phase["tokens_per_s"] is not None
    ]
    done = f"{counts['done']} done, {counts['failed']} failed in {report['seconds']:.0f} s"
    return " · ".join([done, *speeds])


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        raise UserError("usage: quickstart_report RUN_DIR")
    folder = Path(arguments[0])
    path = folder / "report.json"
    if not path.is_file():
        raise UserError(
            f"{path}: not there, so the run has not ended. Run scripts/quickstart.sh again"
        )
    try:
        print(speed_line(read_json(path)))
    except KeyError as error:
        raise UserError(
            f"{path}: key {error} is missing; another version of pecia wrote it"
        ) from error
    for name, what in PLACES.items():
        print(f"  {folder / name}: {what}")
    print(f"  scripts/pecia-report {folder} makes a page with figures of all this")
    return 0


if __name__ == "__main__":
    run(PROGRAM, main)
