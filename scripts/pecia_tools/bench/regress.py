# SPDX-License-Identifier: Apache-2.0
"""Whether this tree is slower than commit REF. Builds REF beside it, in build/regress, and runs pecia-bench prefill,
decode and ops of both in turn (old new old new …) on one rank with all cores; prints medians and their ratio, and marks
what differs by more than the rounds do among themselves. A JSON line for each case is appended to a file.

Ten minutes on two cores, and what the build of REF takes. Exit code 0: nothing is slower; 1: something is, or a step
failed; 2: wrong use.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ..command import UserError
from .common import ROOT, SHAPE_135M, Line, Work, bench_model, bench_parser, load, read, show

PARTS = {
    "prefill": "--tokens 512,2048 --runs 2",
    "decode": "--contexts 512 --batches 1,8 --runs 3",
    "ops": "--runs 3",
}
# A smaller difference is noise, whatever the rounds say: of some fifty cases one has like rounds by chance.
LEAST = 0.02

Times = dict[str, list[float]]


def timed(line: Line) -> Optional[tuple[str, float]]:
    """Case and seconds; None for the line of ops about its machine."""
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


def report(work: Work, old: Sequence[Line], new: Sequence[Line], commits: Sequence[str]) -> int:
    """Prints the table, and keeps a line for each case; 1 if something is slower."""
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
            work.note(f"only {side} has {case}")
    machine: dict[str, Any] = next(
        (line for line in new if "bandwidth" in line or "cpu" in line), {}
    )
    work.keep(
        [
            {
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
            for one in found
        ]
    )
    slower = [one.case for one in found if one.verdict == "slower"]
    work.note(f"{len(slower)} of {len(found)} cases are slower")
    return 1 if slower else 0


def git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


@contextmanager
def tree_of(commit: str, work: Work) -> Iterator[Path]:
    """Its files, which are gone afterwards."""
    tree = ROOT / "build" / "regress" / commit

    def remove() -> None:
        git("worktree", "remove", "--force", str(tree))
        shutil.rmtree(tree, ignore_errors=True)
        git("worktree", "prune")

    remove()
    tree.parent.mkdir(parents=True, exist_ok=True)
    try:
        work.logged("git", "-C", ROOT, "worktree", "add", "--detach", tree, commit)
        yield tree
    finally:
        remove()


def targets_of(tree: Path, parts: Sequence[str]) -> list[str]:
    """Commits before apps/bench have a program for each part."""
    return ["pecia-bench"] if (tree / "apps/bench").is_dir() else [f"bench_{part}" for part in parts]


def measure(work: Work, tree: Path, part: str, lines: Path, model: Path) -> None:
    folder, words = tree / "build/release/bin", PARTS[part].split()
    words += ["--threads", str(len(os.sched_getaffinity(0)))]
    if part != "ops":
        words += ["--model", str(model)]
    if (tree / "apps/bench").is_dir():
        work.logged(folder / "pecia-bench", part, *words, "--json", lines)
    elif part == "ops":
        work.logged(folder / "bench_ops", *words, "--json", out=lines)
    else:
        work.logged(folder / f"bench_{part}", *words, "--json", lines)


def main(arguments: list[str]) -> int:
    parser = bench_parser("regress", __doc__, "HEAD~3 --only ops", rounds=5)
    parser.add_argument("ref", metavar="REF", nargs="?", default="HEAD~1", help="default: %(default)s")
    parser.add_argument("--only", default=",".join(PARTS), help="some of them, with commas (default: %(default)s)")
    options = parser.parse_args(arguments)
    parts = options.only.split(",")
    for part in parts:
        if part not in PARTS:
            raise UserError(f"--only has '{part}'; it may have prefill, decode and ops")
    commit = git("rev-parse", "--quiet", "--verify", "--short=10", f"{options.ref}^{{commit}}")
    if not commit:
        raise UserError(f"'{options.ref}' is no commit of {ROOT}")
    this = git("describe", "--always", "--dirty", "--abbrev=10")
    work = Work("regress", options.json)
    files = {side: work.folder / f"{side}.jsonl" for side in ("old", "new")}
    work.build(*targets_of(ROOT, parts))
    with tree_of(commit, work) as tree:
        work.build(*targets_of(tree, parts), tree=tree)
        model = ROOT if parts == ["ops"] else bench_model("bench-135m", **SHAPE_135M)
        for number in work.rounds(options.rounds):
            for part in parts:
                for side, of in (("old", tree), ("new", ROOT)):
                    work.note(f"round {number} of {options.rounds}, {part}, {side}, {load()}")
                    measure(work, of, part, files[side], model)
    return report(work, read(files["old"]), read(files["new"]), (commit, this))
