# SPDX-License-Identifier: Apache-2.0
"""The headings of a text: Markdown's, underlined ones, and a book's ("CHAPTER 1. Loomings.", "IV.", "Epilogue")."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

LONGEST_TITLE = 200
LONGEST_LINE = 80  # of a heading that is not Markdown
LONGEST_MARKDOWN = 500
ENTRIES_OF_A_LIST = 3  # headings of one depth in a row, nothing under them: a table of contents
BOOK, CHAPTER, SECTION = 1, 2, 3  # depths of headings by their words; Markdown's are 1 to 6

_NUMBER_WORDS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen"
    "|sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty"
    "|(?:the )?(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|last)"
)
_NUMBER = rf"(?:\d+|[IVXLCDM]+|[ivx]+|(?i:{_NUMBER_WORDS}))\b"
_CHAPTER_WORDS = "chapter|kapitel|chapitre|cap[ií]tulo|capitolo|hoofdstuk"
_NUMBERED = (
    (BOOK, re.compile(rf"(?i:book|part|volume)\s+{_NUMBER}")),
    (
        CHAPTER,
        re.compile(
            rf"(?i:{_CHAPTER_WORDS})\s+{_NUMBER}|第\s*[0-9一二三四五六七八九十百千]+\s*[章回]"
        ),
    ),
    (SECTION, re.compile(rf"(?i:section|scene|act|canto|letter)\s+{_NUMBER}")),
)
_NAMED = re.compile(
    r"(?i:prologue|epilogue|preface|foreword|introduction|afterword|conclusion|appendix(?: [a-z0-9]+)?)\.?"
)
_ROMAN = re.compile(r"(?=[IVXLC])C{0,3}(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})\.?")
_MARKDOWN = re.compile(r" {0,3}(#{1,6})[ \t]+(\S.*?)[ \t]*#*")
_UNDERLINE = re.compile(r"={3,}|-{3,}")
_ATTRIBUTE = r'(?:[#.][^\s{}]+|[\w-]+=(?:"[^"]*"|[^\s{}]+)|-)'
_ATTRIBUTES = re.compile(
    rf"\s+\{{{_ATTRIBUTE}(?:\s+{_ATTRIBUTE})*\}}$"
)  # pandoc's: "# Ink {#ink .wide}"
_COLUMNS = re.compile(r"\S {3,}\S")  # a row of a table, with the table's line below it
_BLANK = re.compile(r"\s*")
_FENCE = "```"  # lines of code may begin with '#'


@dataclass(frozen=True)
class Heading:
    begin: int  # character where its line begins
    end: int  # where its last line has ended
    depth: int  # 1: outermost
    title: str
    kind: str = ""  # "chapter": numbered as one, "named": as Epilogue


class Outline:
    """The headings in the order of the text: the `given` ones, else those that its lines look like, without the entries
    of a table of contents."""

    def __init__(self, text: str, given: Iterable[Heading] = ()) -> None:
        self._text = text
        self.headings = list(given) or _without_contents(text, _find(text))
        self._begins = [heading.begin for heading in self.headings]

    def chapters(self) -> list[Heading]:
        """What is called a chapter and whatever is above; where nothing is, the first depth with two headings."""
        called = [heading.depth for heading in self.headings if heading.kind == "chapter"]
        count = Counter(heading.depth for heading in self.headings if heading.kind != "named")
        twice = [depth for depth, times in count.items() if times > 1]
        deepest = min(called or twice or count, default=0)
        return [h for h in self.headings if h.kind == "named" or h.depth <= deepest]

    def begins(self, headings: Iterable[Heading]) -> list[int]:
        """Where to cut before these: of headings in a row only the first, so that none stays behind."""
        cuts = set()
        for heading in headings:
            index = bisect_right(self._begins, heading.begin) - 1
            while index > 0 and _is_blank(
                self._text, self.headings[index - 1].end, self._begins[index]
            ):
                index -= 1
            cuts.add(self._begins[index])
        return sorted(cuts)

    def title_at(self, begin: int) -> str:
        """The heading at `begin`, the last of several in a row; else the one that `begin` is under; else ""."""
        index = bisect_right(self._begins, begin)
        end = max(begin, self.headings[index - 1].end) if index else begin
        while index < len(self.headings) and _is_blank(self._text, end, self._begins[index]):
            end = self.headings[index].end
            index += 1
        return self.headings[index - 1].title if index else ""


def _find(text: str) -> list[Heading]:
    found: list[Heading] = []
    paragraph: list[
        tuple[int, str]
    ] = []  # where lines begin, and the lines, since the last blank one
    is_code = False
    begin = 0
    for whole in [*text.split("\n"), ""]:
        line = whole.rstrip()
        if line.lstrip().startswith(_FENCE):
            is_code = not is_code
            paragraph = []
        elif is_code:
            pass
        elif len(line) <= LONGEST_MARKDOWN and (markdown := _MARKDOWN.fullmatch(line)):
            found.append(_heading([(begin, line)], len(markdown[1]), _plain(markdown[2])))
            paragraph = []
        elif line:
            paragraph.append((begin, line))
        else:
            found += _of_paragraph(paragraph)
            paragraph = []
        begin += len(whole) + 1
    return found


def _of_paragraph(lines: list[tuple[int, str]]) -> list[Heading]:
    """One heading or none: an underlined line, or a numbered one and perhaps a second, or one known by its word."""
    if not 1 <= len(lines) <= 2 or any(len(line) > LONGEST_LINE for _, line in lines):
        return []
    first, last = lines[0][1].strip(), lines[-1][1].strip()
    if len(lines) == 2 and _UNDERLINE.fullmatch(last):
        if _COLUMNS.search(first):
            return []
        return [_heading(lines, 1 if last[0] == "=" else 2, _plain(first))]
    for depth, pattern in _NUMBERED:
        if pattern.match(first):
            return [_heading(lines, depth, " ".join(line for _, line in lines))]
    if len(lines) == 1 and _NAMED.fullmatch(first):
        return [_heading(lines, CHAPTER, first)]
    if len(lines) == 1 and _ROMAN.fullmatch(first):
        return [_heading(lines, SECTION, first)]
    return []


def _plain(title: str) -> str:
    return _ATTRIBUTES.sub("", title)


def _heading(lines: list[tuple[int, str]], depth: int, text: str) -> Heading:
    return make_heading(lines[0][0], lines[-1][0] + len(lines[-1][1]), depth, text)


def make_heading(begin: int, end: int, depth: int, text: str) -> Heading:
    """`text` is the title with any blank space; its words say what kind of heading it is."""
    title = " ".join(text.split())
    kind = ""
    if _NUMBERED[1][1].match(title):
        kind = "chapter"
    elif _NAMED.fullmatch(title):
        kind = "named"
    return Heading(begin, end, depth, title[:LONGEST_TITLE], kind)


def _without_contents(text: str, found: list[Heading]) -> list[Heading]:
    kept: list[Heading] = []
    row: list[Heading] = []  # headings with nothing but blank lines between them
    for heading in found:
        if row and not _is_blank(text, row[-1].end, heading.begin):
            kept += _unless_contents(row)
            row = []
        row.append(heading)
    return kept + _unless_contents(row)


def _unless_contents(row: list[Heading]) -> list[Heading]:
    count = Counter(heading.depth for heading in row)
    return [] if max(count.values(), default=0) >= ENTRIES_OF_A_LIST else row


def _is_blank(text: str, begin: int, end: int) -> bool:
    blank = _BLANK.match(text, begin)  # no slice: the next heading may be far
    return blank is not None and blank.end() >= end
