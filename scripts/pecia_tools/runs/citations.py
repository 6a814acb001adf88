# SPDX-License-Identifier: Apache-2.0
"""Where in its document a request's text stands: by chapter and page, as far as the prompt shard says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..pack.structure import CHAPTER, PAGE, Position
from .requests import Request

Range = tuple[str, str]  # the first and the last; "", "": not known


@dataclass(frozen=True)
class Citation:
    title: str = ""  # that the document gives itself
    chapters: Range = ("", "")
    pages: Range = ("", "")

    def __str__(self) -> str:
        """'The Scribes, CHAPTER 1. One. – CHAPTER 3. Three., pages 7–12'; empty where nothing is known."""
        what = [self.title, _range(self.chapters, " – ")]
        return ", ".join(filter(None, [*what, self.page_range()]))

    def page_range(self) -> str:
        """'page 7' or 'pages 7–12'; empty where no page is known."""
        word = "page" if self.pages[0] == self.pages[1] else "pages"
        return f"{word} {_range(self.pages, '–')}" if self.pages[0] else ""

    def fields(self) -> dict[str, str]:
        """For tables and JSON. What is not known is empty."""
        return {
            "document_title": self.title,
            "first_chapter": self.chapters[0],
            "last_chapter": self.chapters[1],
            "first_page": self.pages[0],
            "last_page": self.pages[1],
        }


def citation_of(request: Request) -> Citation:
    if request.shard is None:
        return Citation()
    found = request.shard.positions(request.turns[0].request)
    return Citation(
        request.origin.document_title,
        _ends([p for p in found if p.kind == CHAPTER]),
        _ends([p for p in found if p.kind == PAGE]),
    )


def _ends(found: Sequence[Position]) -> Range:
    """The innermost that the text begins in, or the first one, and the last that begins in the text."""
    if not found:
        return ("", "")
    begin, last = min(p.begin for p in found), max(p.begin for p in found)
    innermost = [
        max((p for p in found if p.begin == at), key=lambda p: p.depth) for at in (begin, last)
    ]
    return innermost[0].label, innermost[1].label


def _range(ends: Range, dash: str) -> str:
    return ends[0] if ends[0] == ends[1] else dash.join(ends)
