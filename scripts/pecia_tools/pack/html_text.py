# SPDX-License-Identifier: Apache-2.0
"""The text of an HTML page as it reads: paragraphs, lists, tables and preformatted lines, with its headings. Formulas
are TeX."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Optional

from .mathematics import formula, is_drawn
from .text_builder import LINE, PARAGRAPH, TextBuilder


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


HIDDEN = words("head script style noscript template nav svg iframe object select button textarea")
INLINE = words(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark q rb rp rt ruby s samp "
    "small span strike strong sub sup time tt u var wbr"
)
ROWS = words("li tr dt dd option")  # these follow each other without an empty line
TABLE_PARTS = words("thead tbody tfoot")
ITEM = "- "
HEADING = re.compile(r"h([1-6])")
_BLANK = re.compile(r"[ \t\r\n\f]+")
_AROUND_BREAK = re.compile(r" *([\n\t]) *")


def _is_next_row(element: Any) -> bool:
    """Whether it follows a row or an item, be it in an earlier part of its table."""
    if element.tag not in ROWS:
        return False
    if element.getprevious() is not None:
        return True
    part = element.getparent()
    before = part.getprevious() if part is not None and part.tag in TABLE_PARTS else None
    return before is not None and before.tag in TABLE_PARTS


@dataclass(frozen=True)
class FoundHeading:
    begin: int
    depth: int
    title: str


class HtmlText:
    """Adds pages to a text. `anchors` says where the elements with the wanted ids begin, `headings` what h1 to h6 hold;
    whoever calls decides which of the two are the document's chapters."""

    def __init__(self, builder: TextBuilder) -> None:
        self.anchors: dict[str, int] = {}
        self.headings: list[FoundHeading] = []
        self._builder = builder
        self._inline: list[str] = []  # of the block that is being read
        self._marks: list[tuple[int, str]] = []  # (pieces before it, id)
        self._preformatted = 0
        self._separator = PARAGRAPH

    def add(self, root: Any, wanted_ids: Collection[str] = ()) -> None:
        """`root`: a page parsed by lxml. A page begins with an empty line."""
        from lxml import etree

        self.anchors = {}
        self.headings = []
        self._separator = PARAGRAPH
        skipped: set[Any] = set()  # begun, and not to be ended
        walk = etree.iterwalk(root, events=("start", "end", "comment", "pi"))
        for event, element in walk:
            if event == "start":
                if element.get("id") in wanted_ids:
                    self._marks.append((len(self._inline), element.get("id")))
                elif element.tag == "a" and element.get("name") in wanted_ids:
                    self._marks.append((len(self._inline), element.get("name")))
                tex = formula(element)
                if tex is not None:
                    self._inline.append(tex)
                    skipped.add(element)
                elif element.tag in HIDDEN or is_drawn(element):
                    skipped.add(element)
                if element in skipped:
                    walk.skip_subtree()
                else:
                    self._begin(element)
            else:
                if event == "end" and element not in skipped:
                    self._end(element)
                skipped.discard(element)
                if element is not root:
                    self._take(element.tail)
        self._flush()
        for _, name in self._marks:  # behind the last text
            self.anchors.setdefault(name, self._builder.length)
        self._marks = []

    def _begin(self, element: Any) -> None:
        tag = element.tag
        if tag == "br":
            self._inline.append("\n")
        elif tag not in INLINE and tag not in ("td", "th"):
            self._flush()
            if not self._inline:
                self._separator = LINE if _is_next_row(element) else PARAGRAPH
            if tag == "li":
                self._inline.append(ITEM)
            self._preformatted += tag == "pre"
        self._take(element.text)

    def _end(self, element: Any) -> None:
        tag = element.tag
        if tag in ("td", "th"):
            self._inline.append("\t")
        elif tag not in INLINE and tag != "br":
            heading = HEADING.fullmatch(str(tag))
            begin, text = self._flush()
            if tag == "li":
                self._inline = []  # of an empty item its mark is left
            if heading and text:
                self.headings.append(FoundHeading(begin, int(heading[1]), text))
            self._preformatted -= tag == "pre"

    def _take(self, text: Optional[str]) -> None:
        if text:
            self._inline.append(text if self._preformatted else _BLANK.sub(" ", text))

    def _flush(self) -> tuple[int, str]:
        """The block that ends here goes to the text: (where it begins there, its text)."""
        text = self._joined(len(self._inline)).strip()
        is_mark = self._inline[:1] == [ITEM] and text == ITEM.strip()  # the item's block is to come
        if not text or is_mark:
            self._inline = [ITEM] if is_mark else []
            self._marks = [(0, name) for _, name in self._marks]
            return self._builder.length, ""
        begin = self._builder.add(text, self._separator)
        for pieces, name in self._marks:
            self.anchors.setdefault(name, begin + min(len(self._joined(pieces)), len(text)))
        self._inline, self._marks = [], []
        self._separator = PARAGRAPH
        return begin, text

    def _joined(self, pieces: int) -> str:
        """The first pieces of the block without the blank space that a browser would not show."""
        text = "".join(self._inline[:pieces])
        if self._preformatted:
            return text.strip("\n")
        return _AROUND_BREAK.sub(r"\1", re.sub(" +", " ", text)).lstrip()
