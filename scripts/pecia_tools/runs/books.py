# SPDX-License-Identifier: Apache-2.0
"""Documents that were cut into parts, and how much of them the finished parts cover."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .requests import Request


@dataclass
class Coverage:
    parts_done: int = 0
    parts: int = 0
    tokens_done: int = 0
    tokens: int = 0  # 0: not known

    def add(self, other: Coverage) -> None:
        self.parts_done += other.parts_done
        self.parts += other.parts
        self.tokens_done += other.tokens_done
        self.tokens += other.tokens

    @property
    def is_whole(self) -> bool:
        return self.parts_done == self.parts and self.tokens_done == self.tokens

    def __str__(self) -> str:
        """'12 of 12 parts, 100 % of 31,237 tokens'. 100 % is all of them and nothing less."""
        parts = f"{self.parts_done:,} of {self.parts:,} part{'s' if self.parts != 1 else ''}"
        if self.tokens == 0:
            return parts
        return f"{parts}, {100 * self.tokens_done // self.tokens} % of {self.tokens:,} tokens"


@dataclass
class Book:
    """Parts in the book's order; a part may be several requests."""

    name: str
    parts: list[Request] = field(default_factory=list)

    @property
    def is_cut(self) -> bool:
        return any(part.is_part for part in self.parts)

    def coverage(self) -> Coverage:
        undone = {part.origin.part for part in self.parts if not part.is_done}
        done = [part for part in self.parts if part.origin.part not in undone]
        truncated: dict[int, int] = {}  # by part: its requests all read the same text
        for part in done:
            cut = part.truncated(part.turns[0]) or 0
            truncated[part.origin.part] = max(cut, truncated.get(part.origin.part, 0))
        read = union_length(part.origin.span for part in done)
        return Coverage(
            parts_done=len({part.origin.part for part in done}),
            parts=max(part.origin.num_parts for part in self.parts),
            tokens_done=max(0, read - sum(truncated.values())),
            tokens=max(part.origin.book_tokens for part in self.parts),
        )


def books_of(requests: Sequence[Request]) -> list[Book]:
    """In the order of their first parts. A document that was not cut is a book of one part."""
    books: dict[tuple[str, int], Book] = {}
    for request in requests:
        name, num_parts = request.origin.book, request.origin.num_parts
        if name:
            books.setdefault((name, num_parts), Book(name)).parts.append(request)
    for book in books.values():
        book.parts.sort(key=lambda part: part.origin.part)
    return list(books.values())


def union_length(spans: Iterable[tuple[int, int]]) -> int:
    """Tokens that lie in at least one of the spans [begin, end)."""
    total = reached = 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total
