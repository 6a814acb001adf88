# SPDX-License-Identifier: Apache-2.0
"""Cuts a tokenized text into parts: before chapters and headings, else between paragraphs, sentences, lines or words.

Cuts lie between tokens of the text. Without overlap each token is in exactly one part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Optional

import numpy as np

from .headings import Heading, Outline

MINIMUM_SHARE = 0.5  # of a part's room that a boundary must fill to be preferred to the next kind

# The blank space after which a part may begin is in a group, if there is any.
_PARAGRAPH = re.compile(r"(\n[ \t\r]*\n\s*)")
_NO_ABBREVIATION = r"(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bDr)(?<!\bSt)(?<!\b[A-Z])"
_SENTENCE = re.compile(
    rf"(?:[!?…。！？]|{_NO_ABBREVIATION}\.)[\"'”’»)\]]*(\s+)|[。！？][”’」』]*()"
)
_LINE = re.compile(r"(\n\s*)")
_WORD = re.compile(r"(\s+)")


@dataclass(frozen=True)
class Part:
    begin: int  # tokens of the document, what is repeated from the part before included
    new: int  # the first token that no earlier part has
    end: int
    text: str  # without blank space at its ends
    title: str  # the heading that its new tokens begin under
    character: int  # of the document that its text begins at


class TokenizedText:
    """A text with the places between its tokens where it can be cut. `offsets`: of token_offsets. `headings`: what is
    known of them, else they are looked for."""

    def __init__(self, text: str, offsets: np.ndarray, headings: Iterable[Heading] = ()) -> None:
        self.text = text
        self._known_headings = headings
        self.num_tokens = len(offsets)
        # Several tokens can be bytes of one character; a text is not cut between these.
        is_cut = offsets[1:, 0] >= np.maximum.accumulate(offsets[:, 1])[:-1]
        size = np.count_nonzero(is_cut) + 2
        # The type of the offsets, which is half as large as numpy's own for places.
        self._tokens = np.zeros(size, offsets.dtype)
        self._tokens[1:-1] = np.flatnonzero(is_cut)
        self._tokens[1:-1] += 1
        self._tokens[-1] = self.num_tokens
        self._characters = np.zeros(size, offsets.dtype)
        self._characters[1:-1] = offsets[1:, 0][is_cut]
        self._characters[-1] = len(text)

    @cached_property
    def outline(self) -> Outline:
        return Outline(self.text, self._known_headings)

    @cached_property
    def chapters(self) -> np.ndarray:
        return self._at_headings(self.outline.begins(self.outline.chapters()))

    @cached_property
    def headings(self) -> np.ndarray:
        return self._at_headings(self.outline.begins(self.outline.headings))

    @cached_property
    def paragraphs(self) -> np.ndarray:
        return self._at(_PARAGRAPH)

    @cached_property
    def sentences(self) -> np.ndarray:
        return self._at(_SENTENCE)

    @cached_property
    def lines(self) -> np.ndarray:
        return self._at(_LINE)

    @cached_property
    def words(self) -> np.ndarray:
        return self._at(_WORD)

    def character(self, token: int) -> int:
        """Where the text of the tokens from `token` on begins."""
        return int(self._characters[_place(self._tokens, token)])

    def slice(self, begin: int, end: int) -> str:
        return self.text[self.character(begin) : self.character(end)].strip()

    def begin_of_slice(self, begin: int, end: int) -> int:
        """The character that slice(begin, end) begins at."""
        piece = self.text[self.character(begin) : self.character(end)]
        return self.character(begin) + len(piece) - len(piece.lstrip())

    def last_cut(self, after: int, limit: int) -> int:
        """The last token in (after, limit] that a part may begin with, else the first behind."""
        at = _place(self._tokens, limit, "right") - 1
        return int(self._tokens[at if self._tokens[at] > after else at + 1])

    def _at(self, boundary: re.Pattern[str]) -> np.ndarray:
        spans = [m.span(m.lastindex or 0) for m in boundary.finditer(self.text)]
        return self._between(spans)

    def _at_headings(self, begins: Iterable[int]) -> np.ndarray:
        spans = []
        for begin in begins:
            first = begin
            while first > 0 and self.text[first - 1].isspace():
                first -= 1
            last = begin
            while self.text[last].isspace():
                last += 1
            spans.append((first, last))
        return self._between(spans)

    def _between(self, spans: list[tuple[int, int]]) -> np.ndarray:
        """For each span of blank space the last cut inside, as a token; none where a token crosses it."""
        if not spans:
            return np.zeros(0, self._tokens.dtype)
        first, last = np.array(spans, self._characters.dtype).T
        at = np.searchsorted(self._characters, last, side="right") - 1
        return np.unique(self._tokens[at[self._characters[at] >= first]])


def split(
    text: TokenizedText, max_tokens: Optional[int], split_at: Optional[str] = None, overlap: int = 0
) -> list[Part]:
    """Parts of at most `max_tokens` tokens of the text. `split_at` cuts at each boundary of this kind as well;
    from the second on, a part begins with up to `overlap` tokens of the one before."""
    stops = [] if split_at is None else [int(token) for token in getattr(text, split_at + "s")]
    stops = [token for token in stops if 0 < token < text.num_tokens] + [text.num_tokens]
    parts: list[Part] = []
    new = 0
    for stop in stops:
        while new < stop:
            begin = _overlap_begin(text, parts[-1].new, new, overlap) if parts and overlap else new
            limit = stop if max_tokens is None else begin + max_tokens
            end = stop if stop <= limit else _cut(text, new, limit)
            words = text.slice(begin, end)
            if text.slice(new, end) or not parts:
                title = text.outline.title_at(text.character(new))
                character = text.begin_of_slice(begin, end)
                parts.append(Part(begin, new, end, words, title, character))
            else:  # blank space alone
                last = parts.pop()
                parts.append(replace(last, end=end))
            new = end
    return parts or [Part(0, 0, 0, text.text, "", 0)]


def _cut(text: TokenizedText, new: int, limit: int) -> int:
    kinds = ("chapters", "headings", "paragraphs", "sentences", "lines", "words")
    for kind in kinds:
        cuts = getattr(text, kind)
        at = _place(cuts, limit, "right") - 1
        if at >= 0 and cuts[at] > new and cuts[at] - new >= MINIMUM_SHARE * (limit - new):
            return int(cuts[at])
    return text.last_cut(new, limit)


def _overlap_begin(text: TokenizedText, earliest: int, new: int, overlap: int) -> int:
    """The first sentence, else line or word, among the `overlap` tokens before `new`."""
    earliest = max(earliest, new - overlap)
    for cuts in (text.sentences, text.lines, text.words):
        at = _place(cuts, earliest)
        if at < len(cuts) and cuts[at] < new:
            return int(cuts[at])
    return new


def _place(rising: np.ndarray, value: int, side: Literal["left", "right"] = "left") -> int:
    """np.searchsorted with a value of the array's type: else all of the array is converted at each call."""
    return int(rising.searchsorted(rising.dtype.type(value), side))
