# SPDX-License-Identifier: Apache-2.0
"""Documents to parts that fit, each with its place in the document."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from tokenizers import Tokenizer

from .headings import Outline
from .inputs import Document, Place, Source
from .split import Part, TokenizedText, split
from .token_offsets import token_offsets

BATCH_CHARACTERS = 1_000_000  # encoded together: enough for all threads, little enough to hold


@dataclass
class Splitter:
    """Cuts documents as asked. Texts are encoded many at a time, in all threads."""

    tokenizer: Tokenizer
    max_tokens: Optional[int]
    split_at: Optional[str]
    overlap: int
    num_uncut: int = 0  # documents in which nothing of `split_at` was found

    def split_all(self, sources: Iterable[Source]) -> Iterator[Source]:
        """Documents become their parts; anything else passes."""
        batch: list[Source] = []
        characters = 0
        for source in sources:
            batch.append(source)
            characters += len(source.text) if isinstance(source, Document) else 0
            if characters >= BATCH_CHARACTERS:
                yield from self._split_batch(batch)
                batch, characters = [], 0
        yield from self._split_batch(batch)

    def _split_batch(self, batch: list[Source]) -> Iterator[Source]:
        documents = [source for source in batch if isinstance(source, Document)]
        offsets = deque(token_offsets(self.tokenizer, [document.text for document in documents]))
        for source in batch:
            if isinstance(source, Document):
                known = source.structure.headings if source.structure else ()
                yield from self._parts_of(source, TokenizedText(source.text, offsets.popleft(), known))
            else:
                yield source

    def _parts_of(self, document: Document, text: TokenizedText) -> list[Document]:
        parts = self._fitting(text)
        if self.split_at is not None and len(getattr(text, self.split_at + "s")) == 0:
            self.num_uncut += 1
        document = with_headings(document, text.outline)
        digits = max(3, len(str(len(parts))))
        return [
            replace(
                document,
                name=f"{document.name}#{number:0{digits}d}" if len(parts) > 1 else document.name,
                text=part.text,
                begin=part.character,
                place=Place(
                    document.name,
                    part.title,
                    number,
                    len(parts),
                    part.begin,
                    part.end,
                    text.num_tokens,
                ),
            )
            for number, part in enumerate(parts, start=1)
        ]

    def _fitting(self, text: TokenizedText) -> list[Part]:
        """Parts that have at most max_tokens tokens also when they are encoded alone: cut out of its surroundings,
        a text may need a token more than it did inside."""
        parts = split(text, self.max_tokens, self.split_at, self.overlap)
        most = self.max_tokens
        if most is None:
            return parts
        room = most
        while len(parts) > 1:
            longest = self._longest(parts)
            if longest <= most or room == 1:
                break
            room = max(1, room - (longest - most))
            parts = split(text, room, self.split_at, min(self.overlap, room // 2))
        return parts

    def _longest(self, parts: Sequence[Part]) -> int:
        """Tokens of the part that has most when it is encoded alone."""
        longest = characters = 0
        batch: list[str] = []
        for number, part in enumerate(parts, start=1):
            batch.append(part.text)
            characters += len(part.text)
            if characters >= BATCH_CHARACTERS or number == len(parts):
                found = self.tokenizer.encode_batch(batch, add_special_tokens=False)
                longest = max(longest, *map(len, found))
                batch, characters = [], 0
        return longest


def with_headings(document: Document, outline: Outline) -> Document:
    """The headings of the text become what is known of it, if somebody will cite the document."""
    if document.structure is None:
        return document
    structure = replace(document.structure, headings=tuple(outline.headings))
    return replace(document, structure=structure)


def whole(sources: Iterable[Source], names_title: bool) -> Iterator[Source]:
    """Documents that are not cut, with their headings, and as their only part for a template that names it."""
    for source in sources:
        if isinstance(source, Document) and (source.structure is not None or names_title):
            known = source.structure.headings if source.structure else ()
            outline = Outline(source.text, known)
            source = with_headings(source, outline)
            if names_title:
                source = replace(source, place=Place(source.name, outline.title_at(0)))
        yield source
