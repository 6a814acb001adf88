# SPDX-License-Identifier: Apache-2.0
"""Puts a document's text together from blocks, and remembers where its headings and pages begin."""

from __future__ import annotations

import re
from typing import Optional

from .headings import Heading, make_heading
from .structure import Page, Structure, StructuredText

PARAGRAPH, LINE = "\n\n", "\n"
# Characters that programs put for each other in titles.
_ALIKE = {
    char: f"[{chars}]" for chars in ("'’‘ʼ", '"“”„', "\\-‐‑‒–—") for char in chars.strip("\\")
}


class Unreadable(Exception):
    """The file is damaged, locked or empty; the message says what of it, without the file's name."""


class TextBuilder:
    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._headings: list[Heading] = []
        self._pages: list[Page] = []
        self._notes: list[str] = []

    def add(self, block: str, separator: str = PARAGRAPH) -> int:
        """Appends a text without blank space at its ends. Returns the character that it begins at."""
        if self._pieces:
            self._pieces.append(separator)
            self._length += len(separator)
        begin = self._length
        self._pieces.append(block)
        self._length += len(block)
        return begin

    def heading(self, begin: int, depth: int, title: str) -> None:
        """A heading at a character of the text. Its own line ends where its title ends, if it stands there."""
        self._headings.append(make_heading(begin, begin, depth, title))

    def page(self, begin: int, label: str) -> None:
        self._pages.append(Page(begin, label))

    def note(self, text: str) -> None:
        self._notes.append(text)

    @property
    def length(self) -> int:
        return self._length

    def finish(self, title: str = "") -> StructuredText:
        text = "".join(self._pieces)
        if not text:
            raise Unreadable("the document has no text")
        headings = sorted(self._headings, key=lambda heading: heading.begin)
        inside = tuple(_with_end(text, h) for h in headings if h.begin < len(text) and h.title)
        pages = tuple(sorted(self._pages, key=lambda page: page.begin))
        structure = Structure(" ".join(title.split()), inside, pages)
        return StructuredText(text, structure, tuple(self._notes))


def find_title(text: str, title: str, begin: int = 0) -> Optional[re.Match[str]]:
    """Where the title's words stand in the text, whatever blank space, case, apostrophes, quotation marks and dashes
    they have there."""
    words = title.split()
    if not words:
        return None
    patterns = ("".join(_ALIKE.get(char, re.escape(char)) for char in word) for word in words)
    return re.compile(r"\s+".join(patterns), re.IGNORECASE).search(text, begin)


def _with_end(text: str, heading: Heading) -> Heading:
    line = text[heading.begin : heading.begin + 4 * len(heading.title)]
    found = find_title(line, heading.title)
    end = heading.begin + found.end() if found and found.start() == 0 else heading.begin
    return make_heading(heading.begin, end, heading.depth, heading.title)
