# SPDX-License-Identifier: Apache-2.0
"""How much was packed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .inputs import Document, Source
from .packed import PackedRequest


@dataclass
class Totals:
    """What the last line says."""

    documents: int = 0
    lines: int = 0  # of JSONL, that are no documents
    parts: int = 0
    questions: int = 0
    requests: int = 0
    turns: int = 0
    tokens: int = 0

    def of_sources(self, sources: Iterable[Source]) -> Iterator[Source]:
        for source in sources:
            if isinstance(source, Document):
                self.documents += 1
            else:
                self.lines += 1
            yield source

    def of_parts(self, sources: Iterable[Source]) -> Iterator[Source]:
        for source in sources:
            self.parts += isinstance(source, Document)
            yield source

    def take_back(self, source: Source) -> None:
        """A document, or one of its parts, is not packed after all."""
        if not isinstance(source, Document):
            self.lines -= 1
        elif self.parts:
            self.parts -= 1
        else:
            self.documents -= 1

    def watch(self, requests: Iterable[PackedRequest]) -> Iterator[PackedRequest]:
        for request in requests:
            self.requests += 1
            self.turns += len(request.turns)
            self.questions += len(request.turns) - 1 if request.is_fork else 0
            self.tokens += sum(len(turn.tokens) for turn in request.turns)
            yield request

    def text(self) -> str:
        counts = [(count, what) for what, count in vars(self).items() if count]
        return ", ".join(f"{count} {what if count > 1 else what[:-1]}" for count, what in counts)
