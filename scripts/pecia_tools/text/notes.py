# SPDX-License-Identifier: Apache-2.0
"""What pecia-text says of what it wrote, and of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..command import note
from ..runs.books import Book, Coverage
from ..runs.requests import Request
from .files import INDEX
from .own_files import Outcome

PROGRAM = "pecia-text"
SHOWN_NAMES = 20  # of books and of files


def say_outcome(outcome: Outcome, folder: Path) -> str:
    """'12 texts written, 3 unchanged → texts'; the index goes without saying unless it was kept."""
    for name in outcome.kept[:SHOWN_NAMES]:
        note(
            PROGRAM,
            f"{folder / name}: kept, since it is not as {PROGRAM} left it. --force overwrites it",
        )
    if len(outcome.kept) > SHOWN_NAMES:
        note(PROGRAM, f"{len(outcome.kept) - SHOWN_NAMES} more files were kept")
    counts = {
        "unchanged": outcome.unchanged,
        "kept": outcome.kept,
        "removed": outcome.removed,
    }
    written = sum(name != INDEX for name in outcome.written)
    said = [f"{written} text{'s' if written != 1 else ''} written"]
    for what, names in counts.items():
        number = len(names) if what == "kept" else sum(name != INDEX for name in names)
        if number:
            said.append(f"{number} {what}")
    return f"{', '.join(said)} → {folder}"


def say_coverage(books: Sequence[Book]) -> None:
    """A line per book, the unfinished ones first, and one of all together. A document that was not cut is named
    where its answer is there, but does not cover all of it."""
    covered = [(book, book.coverage()) for book in books]
    named = [
        (book.name, coverage)
        for book, coverage in covered
        if book.is_cut or (coverage.parts_done > 0 and not coverage.is_whole)
    ]
    named.sort(key=lambda entry: entry[1].is_whole)
    for name, coverage in named[:SHOWN_NAMES]:
        note(PROGRAM, f"{name}: {coverage}")
    if rest := named[SHOWN_NAMES:]:
        whole = sum(coverage.is_whole for _, coverage in rest)
        note(PROGRAM, f"{len(rest):,} more books, {whole:,} of them whole")
    if len(covered) > 1:
        total = Coverage()
        for _, coverage in covered:
            total.add(coverage)
        note(PROGRAM, f"{len(covered):,} documents in all: {total}")


def say_turns(requests: Sequence[Request]) -> tuple[str, bool]:
    """What the run's turns have come to, and whether all are done."""
    counts = Counter(turn.state for request in requests for turn in request.producing)
    order = ("done", "failed", "partial", "open")
    said = ", ".join(f"{counts[state]} {state}" for state in order if counts[state])
    parts = [f"turns: {said or 'none'}"]
    turns = [(r, t) for r in requests for t in r.turns if t.state in ("done", "partial")]
    truncated = sum(bool(request.truncated(turn)) for request, turn in turns)
    if truncated:
        parts.append(f"{truncated} truncated")
    cut = sum(turn.finish_reason == "length" and turn.slots > 0 for _, turn in turns)
    if cut:
        parts.append(f"{cut} cut by length")
    return " · ".join(parts), set(counts) <= {"done"}
