# SPDX-License-Identifier: Apache-2.0
"""csa_report FILE: a table of what bench-csa.sh measured. A figure is the median of its case."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..command import UserError, run
from .modes import read, show

PROGRAM = "csa-report"
WAITS = (
    "ring_pass_kv",
    "halo",
    "level_tokens",
    "level_outputs",
    "importance_samples",
    "importance_of_heads",
    "row_need_of_heads",
    "all_to_all_heads",
    "all_to_all_rows",
)
HEADS = (
    "prefill",
    "seconds",
    "attention s",
    "waiting for messages s",
    "importance s",
    "MB sent, all ranks",
    "seconds / levels that drop nothing",
)


def case(line: dict[str, Any]) -> str:
    """ "dense ring", "Ulysses", "3 levels × 4, drop 20 %"."""
    if "held_out_errors" in line:
        return ""
    if line["ring"] != "levels":
        return "dense ring" if "CP 1 " not in line["grid"] else "Ulysses"
    parts = f" in {line['pipeline']} parts" if line["pipeline"] > 1 else ""
    if line["levels"] == 1:
        return "1 level: each rank's tokens alone"
    return f"{line['levels']} levels{parts}, drop {100 * line['drop']:.0f} %"


def rows(lines: Sequence[dict[str, Any]]) -> list[list[str]]:
    cases: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if name := case(line):
            cases.setdefault(name, []).append(line)

    def median(of: Sequence[float]) -> float:
        return statistics.median(of)

    def stage(line: dict[str, Any], names: Sequence[str]) -> float:
        return sum(seconds for name, seconds in line["stages_s_of_rank_0"] if name in names)

    seconds = {name: median([one["seconds"]["median"] for one in of]) for name, of in cases.items()}
    exact = [name for name in cases if name.startswith("2 levels, drop 0")]
    if not exact:
        raise UserError("no case with two levels that drop nothing")
    return [
        [
            name,
            f"{seconds[name]:.2f}",
            f"{median([stage(one, ['attention']) for one in of]):.2f}",
            f"{median([stage(one, WAITS) for one in of]):.2f}",
            f"{median([stage(one, ['importance']) for one in of]):.2f}",
            f"{median([one['sent_bytes_of_layers'] for one in of]) / 1e6:.0f}",
            f"{seconds[name] / seconds[exact[0]]:.2f}",
        ]
        for name, of in cases.items()
    ]


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        raise UserError(str(__doc__))
    lines = read(Path(arguments[0]))
    show(f"prefill of {lines[0]['tokens']} tokens on {lines[0]['ranks']} ranks", HEADS, rows(lines))
    return 0


if __name__ == "__main__":
    run(PROGRAM, main)
