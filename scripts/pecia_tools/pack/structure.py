# SPDX-License-Identifier: Apache-2.0
"""What is known of a document beside its text: its title, its headings, its pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .headings import Heading

CHAPTER, PAGE = "chapter", "page"


@dataclass(frozen=True)
class Page:
    begin: int  # character of the document's text
    label: str  # as the document numbers it: "xii", "240"


@dataclass(frozen=True)
class Structure:
    title: str = ""
    headings: tuple[Heading, ...] = ()  # in the order of the text
    pages: tuple[Page, ...] = ()  # in the order of the text


@dataclass(frozen=True)
class StructuredText:
    text: str
    structure: Structure
    notes: tuple[
        str, ...
    ] = ()  # what the user should know of the reading: "pages without text: 3, 7-9"


@dataclass(frozen=True)
class Position:
    """A chapter or a page: [begin, end) are characters of the document or tokens of a turn."""

    kind: str  # CHAPTER or PAGE
    depth: int  # of a chapter, 1 is the outermost; 0 for pages
    label: str
    begin: int
    end: int


def positions(structure: Structure, begin: int, end: int) -> list[Position]:
    """What of each chapter and page lies in the characters [begin, end) of the document. A chapter ends before the
    next heading that is as high or higher."""
    found = [*_chapters(structure.headings, end), *_pages(structure.pages, end)]
    return [
        Position(p.kind, p.depth, p.label, max(p.begin, begin), min(p.end, end))
        for p in found
        if max(p.begin, begin) < min(p.end, end)
    ]


def _chapters(headings: Sequence[Heading], end: int) -> list[Position]:
    found = []
    ends: list[tuple[int, int]] = []  # (depth, begin) of the headings behind, the next one last
    for heading in reversed(headings):
        while ends and ends[-1][0] > heading.depth:
            ends.pop()
        until = ends[-1][1] if ends else max(end, heading.begin)
        found.append(Position(CHAPTER, heading.depth, heading.title, heading.begin, until))
        ends.append((heading.depth, heading.begin))
    return found[::-1]


def _pages(pages: Sequence[Page], end: int) -> list[Position]:
    ends = [*(page.begin for page in pages[1:]), max(end, pages[-1].begin if pages else 0)]
    return [Position(PAGE, 0, page.label, page.begin, until) for page, until in zip(pages, ends)]
