# SPDX-License-Identifier: Apache-2.0
"""regress_report OLD NEW OLD_COMMIT NEW_COMMIT JSON: a table of what bench-regress.sh measured, and for each case a
JSON line appended to JSON. OLD and NEW have the lines of all rounds. Exit code 1: something is slower.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ..command import UserError, note, run
from .modes import Line, read, show

PROGRAM = "regress-report"
# A smaller difference is noise, whatever the rounds say: of some fifty cases one has like rounds by chance.
LEAST = 0.02

Times = dict[str, list[float]]


def timed(line: Line) -> Optional[tuple[str, float]]:
    """Case and seconds; None for bench_ops's line of its machine."""
    bench = line.get("bench")
    if bench == "bench_prefill":
        return f"prefill of {line['tokens']}", line["seconds"]["median"]
    if bench == "bench_decode":
        name = f"decode step, context {line['context']}, batch {line['batch']}"
        return name, line["step_seconds"]["median"]
    if "op" in line:
        return f"{line['op']}: {line['shape']}", line["median_s"]
    return None


def times(lines: Sequence[Line]) -> Times:
    """Of each case, in the order of the first round."""
    found: Times = {}
    for case in filter(None, map(timed, lines)):
        found.setdefault(case[0], []).append(case[1])
    return found


def spread(values: Sequence[float]) -> float:
    """From the fastest round to the slowest, as a share of the median."""
    return (max(values) - min(values)) / statistics.median(values)


@dataclass(frozen=True)
class Comparison:
    case: str
    old: list[float]  # seconds by round
    new: list[float]

    @property
    def ratio(self) -> float:
        return statistics.median(self.new) / statistics.median(self.old)

    @property
    def noise(self) -> float:
        """What a difference must exceed."""
        return max(spread(self.old), spread(self.new), LEAST)

    @property
    def verdict(self) -> str:
        """A ratio of 1.25 is as far from 1 as one of 0.8."""
        if self.ratio > 1 + self.noise:
            return "slower"
        return "faster" if 1 / self.ratio > 1 + self.noise else ""


def compare(old: Times, new: Times) -> list[Comparison]:
    found = [Comparison(case, old[case], new[case]) for case in new if case in old]
    if not found:
        raise UserError("old and new have no case in common")
    for one in found:
        if len(one.old) != len(one.new):
            raise UserError(f"{one.case}: {len(one.old)} rounds of old and {len(one.new)} of new")
    return found


def row(one: Comparison) -> list[str]:
    medians = [f"{1e3 * statistics.median(values):.3f}" for values in (one.old, one.new)]
    spreads = " / ".join(f"{100 * spread(values):.1f}" for values in (one.old, one.new))
    return [one.case, *medians, f"{one.ratio:.3f}", spreads, one.verdict]


def main(arguments: list[str]) -> int:
    if len(arguments) != 5:
        raise UserError("usage: regress_report OLD NEW OLD_COMMIT NEW_COMMIT JSON")
    old, new = (read(Path(path)) for path in arguments[:2])
    commits = arguments[2:4]
    before, after = times(old), times(new)
    found = compare(before, after)
    heads = ("what", *(f"{commit} ms" for commit in commits), "new / old", "spread of rounds %", "")
    show(
        f"{commits[1]} against {commits[0]}, {len(found[0].old)} rounds",
        heads,
        [row(one) for one in found],
    )
    print()
    for side, others in (
        ("old", before.keys() - after.keys()),
        ("new", after.keys() - before.keys()),
    ):
        for case in sorted(others):
            note(PROGRAM, f"only {side} has {case}")
    machine: dict[str, Any] = next(
        (line for line in new if "bandwidth" in line or "cpu" in line), {}
    )
    with Path(arguments[4]).open("a", encoding="utf-8") as file:
        for one in found:
            line = {
                "bench": "bench_regress",
                "machine": machine.get("cpu", machine.get("machine")),
                "old": commits[0],
                "new": commits[1],
                "case": one.case,
                "old_s": one.old,
                "new_s": one.new,
                "ratio": one.ratio,
                "verdict": one.verdict,
            }
            file.write(json.dumps(line) + "\n")
    slower = [one.case for one in found if one.verdict == "slower"]
    note(PROGRAM, f"{len(slower)} of {len(found)} cases are slower")
    return 1 if slower else 0


if __name__ == "__main__":
    run(PROGRAM, main)
