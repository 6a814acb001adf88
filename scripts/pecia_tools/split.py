"""Cuts a long text into parts of a bounded number of tokens, between paragraphs or sentences where it can."""

from __future__ import annotations

import re
from bisect import bisect_right

from tokenizers import Tokenizer

# From the most to the least welcome; a part ends after the match.
BOUNDARIES = tuple(
    re.compile(pattern)
    for pattern in (
        r"\n[ \t\r]*\n\s*",  # paragraph
        r"[.!?…。！？][\"'”’)\]]*\s+|[。！？]",  # sentence
        r"\n",
        r"\s+",
    )
)
MINIMUM_SHARE = 0.5  # of a part's room that a boundary must fill to be preferred to the next kind


def split(tokenizer: Tokenizer, text: str, max_tokens: int) -> list[str]:
    """Parts of at most max_tokens tokens each (special tokens not counted), without blank space at their ends.
    Nothing else of the text is lost."""
    ends = [end for _, end in tokenizer.encode(text, add_special_tokens=False).offsets]
    if len(ends) <= max_tokens:
        return [text]
    parts = []
    begin = 0
    while begin < len(text):
        room = max_tokens
        while True:
            cut = _cut(text, begin, _end_of_room(ends, begin, room, len(text)))
            part = text[begin:cut].strip()
            # A text cut out of its surroundings may need a token more than it did inside.
            excess = len(tokenizer.encode(part, add_special_tokens=False)) - max_tokens
            if excess <= 0 or cut == begin + 1:
                break
            room = max(1, room - excess)
        if part:
            parts.append(part)
        begin = cut
    return parts


def _end_of_room(ends: list[int], begin: int, room: int, length: int) -> int:
    """The character where `room` tokens from `begin` on have ended."""
    last = bisect_right(ends, begin) + room - 1
    return max(begin + 1, ends[last]) if last < len(ends) else length


def _cut(text: str, begin: int, limit: int) -> int:
    if limit >= len(text):
        return len(text)
    for boundary in BOUNDARIES:
        cuts = [m.end() for m in boundary.finditer(text, begin, limit) if m.end() > begin]
        if cuts and cuts[-1] - begin >= MINIMUM_SHARE * (limit - begin):
            return cuts[-1]
    return limit
