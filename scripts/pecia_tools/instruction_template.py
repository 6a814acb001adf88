# SPDX-License-Identifier: Apache-2.0
"""The text that asks: where the document, its name and the question stand in it."""

from __future__ import annotations

import string

from .command import UserError, suggestion
from .inputs import Document, Place

PLACES = ("text", "name", "book", "title", "part", "parts")


class InstructionTemplate:
    """Fills in {text}, {name}, {book}, {title}, {part}, {parts} and, with questions, {question}; {{ and }} are
    literal braces."""

    def __init__(self, template: str, where: str, has_questions: bool) -> None:
        known = {*PLACES, *(["question"] if has_questions else [])}
        try:
            self._pieces = [
                (literal, name) for literal, name, _, _ in string.Formatter().parse(template)
            ]
        except ValueError as error:
            raise UserError(
                f"{where}: {error}. Write a literal brace twice: {{{{ or }}}}"
            ) from error
        names = [name for _, name in self._pieces if name is not None]
        for name in names:
            if name not in known:
                raise UserError(
                    f"{where}: placeholder {{{name}}} is not known{suggestion(name, known)}; known are "
                    f"{', '.join(f'{{{k}}}' for k in sorted(known))}. A literal brace is written twice"
                )
        for name in ("question", "text"):
            if name in known and names.count(name) != 1:
                raise UserError(
                    f"{where}: {{{name}}} must occur once, not {names.count(name)} times"
                )
        if has_questions and names.index("question") < names.index("text"):
            raise UserError(
                f"{where}: {{question}} must come after {{text}}: what stands before it is shared"
            )

    @property
    def names_title(self) -> bool:
        return any(name == "title" for _, name in self._pieces)

    def fill(self, document: Document, question: str = "") -> str:
        return "".join(self._filled(document, question))

    def text_begin(self, document: Document) -> int:
        """The character of what fill() gives that the document's text begins at."""
        before = next(i for i, (_, name) in enumerate(self._pieces) if name == "text")
        pieces = self._filled(document, "")
        return sum(map(len, pieces[: 2 * before + 1]))

    def _filled(self, document: Document, question: str) -> list[str]:
        """The literal text before each placeholder, and what stands for it."""
        place = document.place or Place(document.name)
        values = {
            "text": document.text,
            "name": document.name,
            "question": question,
            "book": place.book,
            "title": place.title,
            "part": str(place.part),
            "parts": str(place.parts),
        }
        filled = []
        for literal, name in self._pieces:
            filled += [literal, "" if name is None else values[name]]
        return filled
