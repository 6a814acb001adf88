# SPDX-License-Identifier: Apache-2.0
"""The files of pecia-summarize: a summary for each book with what it covers, and those of its parts and chapters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..runs.books import Book, Coverage, union_length
from ..text.answer_table import write_csv
from ..text.files import file_name
from ..text.own_files import OwnFiles
from . import page as summary_page
from .tree import Gap, Node

RECORD = ".pecia-summarize.json"
INDEX = "index.csv"
PAGE = "summaries.html"
LEVELS = "levels"
COLUMNS = (
    "book",
    "document_title",
    "parts",
    "parts_covered",
    "tokens",
    "tokens_covered",
    "rounds",
    "missing",
)


@dataclass(frozen=True)
class Summary:
    name: str
    node: Optional[Node]  # None: there is none
    coverage: Coverage  # of the parts that its summary tells of
    rounds: int  # that changed what is told of it: the levels of its tree
    gaps: Sequence[Gap]

    @property
    def is_whole(self) -> bool:
        return self.node is not None and self.coverage.is_whole

    @property
    def statement(self) -> str:
        """'46 of 46 parts, 100 % of 412,331 tokens, in 3 levels': the parts' level is the first one."""
        if self.node is None:
            return str(self.coverage)
        return f"{self.coverage}, in {self.rounds} level{'s' if self.rounds > 1 else ''}"


@dataclass(frozen=True)
class Written:
    books: list[Summary]
    kept: list[str]  # files that somebody changed


def write_summaries(
    folder: Path, books: Sequence[Book], levels: Sequence[Sequence[Node]], gaps: Sequence[Gap]
) -> Written:
    """`levels`: the summaries after each round, the parts' first."""
    summaries = [summary_of(book, levels, gaps) for book in books]
    source = {"results": str((folder / "rounds/1").resolve())}
    with OwnFiles(folder, RECORD, source, force=False) as files:
        for summary in summaries:
            if summary.node is not None:
                files.write(file_name(summary.name), _text(summary, summary.node))
            if summary.coverage.parts > 1:
                files.write(f"{LEVELS}/{file_name(summary.name)}", _levels(summary.name, levels))
        with files.open(INDEX) as file:
            write_csv(file, COLUMNS, map(_row, summaries))
        with files.open(PAGE) as file:
            file.write(summary_page.HEAD)
            for summary in summaries:
                file.write(
                    summary_page.book_section(
                        summary.name, summary.statement, summary.node, levels, summary.gaps
                    )
                )
            file.write(summary_page.END)
        return Written(summaries, files.commit().kept)


def summary_of(book: Book, levels: Sequence[Sequence[Node]], gaps: Sequence[Gap]) -> Summary:
    last = [node for node in levels[-1] if node.book == book.name]
    rounds = 1 + sum(
        [n for n in before if n.book == book.name] != [n for n in after if n.book == book.name]
        for before, after in zip(levels, levels[1:])
    )
    node = last[0] if last else None
    told = set(node.parts) if node is not None else set()
    covered = [part for part in book.parts if part.origin.part in told]
    coverage = Coverage(
        parts_done=len(told),
        parts=max(part.origin.num_parts for part in book.parts),
        tokens_done=union_length(part.origin.span for part in covered),
        tokens=max(part.origin.book_tokens for part in book.parts),
    )
    return Summary(
        book.name, node, coverage, rounds, [gap for gap in gaps if gap.book == book.name]
    )


def _text(summary: Summary, node: Node) -> str:
    """Text in brackets is not the model's."""
    head = [f"[{summary.statement}]", *(f"[missing: {gap}]" for gap in summary.gaps)]
    if where := str(node.where):
        head.append(f"[source: {where}]")
    return "\n".join([*head, "", *_lines(node)])


def _lines(node: Node) -> list[str]:
    return [node.text, *(["", "[cut at the longest length]"] if node.is_cut else []), ""]


def _levels(book: str, levels: Sequence[Sequence[Node]]) -> str:
    """The summaries of each round that are not of the round before, the last round first."""
    blocks = []
    for number in range(len(levels), 0, -1):
        before = levels[number - 2] if number > 1 else []
        for node in levels[number - 1]:
            if node.book == book and node not in before:
                head = f"=== round {number}: {node.label} ==="
                blocks.append("\n".join([head, *_lines(node)]))
    return "\n".join(blocks)


def _row(summary: Summary) -> dict[str, object]:
    return {
        "book": summary.name,
        "document_title": summary.node.where.title if summary.node else "",
        "parts": summary.coverage.parts,
        "parts_covered": summary.coverage.parts_done,
        "tokens": summary.coverage.tokens,
        "tokens_covered": summary.coverage.tokens_done,
        "rounds": summary.rounds,
        "missing": "; ".join(map(str, summary.gaps)),
    }
