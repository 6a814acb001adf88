# SPDX-License-Identifier: Apache-2.0
"""How summaries of parts become one of a book: those of a chapter first, then neighbours, until one is left. Values
only; nothing here runs a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from ..runs.citations import Citation, Range

SEPARATOR = "\n\n"


@dataclass(frozen=True)
class Node:
    """A summary, and the parts of the book that it tells of."""

    book: str
    parts: tuple[int, ...]  # from 1, rising
    num_parts: int
    chapter: str  # the outermost that it begins in; "": not known
    where: Citation
    text: str
    is_cut: bool = False  # the model wrote more than it was allowed to

    @property
    def label(self) -> str:
        """'Parts 3-5 of 12, CHAPTER 3. Ink, pages 12–20'."""
        place = str(Citation("", self.where.chapters, self.where.pages))
        return ", ".join(filter(None, [_which(self.parts, self.num_parts).capitalize(), place]))

    @property
    def block(self) -> str:
        """What a prompt to merge has of it."""
        return f"[{self.label}]\n{self.text}"


@dataclass(frozen=True)
class Gap:
    """Parts of a book that no summary tells of after a round, and why."""

    book: str
    parts: tuple[int, ...]
    num_parts: int
    round: int
    why: str

    def __str__(self) -> str:
        """'parts 3-5 of 12, merged in round 2: …'."""
        which = _which(self.parts, self.num_parts)
        return f"{which}{f', merged in round {self.round}' if self.round > 1 else ''}: {self.why}"


def _which(parts: Sequence[int], num_parts: int) -> str:
    first, last = parts[0], parts[-1]
    return f"{f'part {first}' if first == last else f'parts {first}-{last}'} of {num_parts}"


Group = tuple[Node, ...]  # summaries that become one; a group of one stays as it is


def groups(nodes: Sequence[Node], room: int, num_tokens: Callable[[str], int]) -> list[Group]:
    """The next round for one book. `room`: tokens that a prompt has for summaries. Where chapters have several
    summaries, only those are merged, so that each chapter gets one of its own before chapters are put together."""
    chapters = [list(run) for _, run in groupby(nodes, key=lambda node: node.chapter)]
    if any(len(run) > 1 and run[0].chapter for run in chapters) and len(chapters) > 1:
        return [
            group
            for run in chapters
            for group in (
                _filled(run, room, num_tokens) if run[0].chapter else [(node,) for node in run]
            )
        ]
    return _filled(nodes, room, num_tokens)


def _filled(nodes: Sequence[Node], room: int, num_tokens: Callable[[str], int]) -> list[Group]:
    """Neighbours together as long as they fit, shared out evenly. At least two go together, so that rounds come to an
    end."""
    sizes = [num_tokens(node.block + SEPARATOR) for node in nodes]
    fewest = max(1, -(-sum(sizes) // room))
    target = max(sum(sizes) / fewest, 1)
    found: list[list[Node]] = []
    size = 0
    for node, own in zip(nodes, sizes):
        begins = not found or (len(found[-1]) > 1 and (size + own > room or size >= target))
        if begins:
            found.append([])
            size = 0
        found[-1].append(node)
        size += own
    return [tuple(group) for group in found]


def merged(group: Group, text: str, is_cut: bool = False) -> Node:
    """The node of a group's summary."""
    first, last = group[0], group[-1]
    parts = tuple(part for node in group for part in node.parts)
    where = Citation(
        first.where.title,
        _span([node.where.chapters for node in group]),
        _span([node.where.pages for node in group]),
    )
    assert first.book == last.book
    return Node(first.book, parts, first.num_parts, first.chapter, where, text, is_cut)


def _span(ranges: Sequence[Range]) -> Range:
    known = [found for found in ranges if found[0]]
    return (known[0][0], known[-1][1]) if known else ("", "")
