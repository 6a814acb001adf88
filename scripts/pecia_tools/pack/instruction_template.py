# SPDX-License-Identifier: Apache-2.0
"""The text that asks: where the document, its name and the question stand in it."""

from __future__ import annotations

import string

from ..command import UserError, suggestion
from .columns import Columns
from .decoding import BadInput
from .inputs import Document, Place

PLACES = ("text", "name", "book", "title", "part", "parts")


class InstructionTemplate:
    """Fills in {text}, {name}, {book}, {title}, {part}, {parts} and, with questions, {question}; {{ and }} are
    literal braces. With `takes_columns` other places are columns of a table's row, or keys of a JSONL line, and {text}
    may be missing beside them. A row's own column comes before a place of its name, but not before {text} and
    {question}."""

    def __init__(
        self, template: str, where: str, has_questions: bool, takes_columns: bool = False
    ) -> None:
        known = {*PLACES, *(["question"] if has_questions else [])}
        try:
            parsed = list(string.Formatter().parse(template))
        except ValueError as error:
            raise UserError(
                f"{where}: {error}. Write a literal brace twice: {{{{ or }}}}"
            ) from error
        for _, name, form, conversion in parsed:
            if form or conversion:
                raise UserError(
                    f"{where}: placeholder {{{name}…}} has a form, which is not supported; write {{{name}}}. "
                    "A literal brace is written twice"
                )
        self._pieces = [(literal, name) for literal, name, _, _ in parsed]
        names = [name for _, name in self._pieces if name is not None]
        needed = (
            frozenset(n for n in names if n and n != "question") - known if takes_columns else ()
        )
        self.columns = Columns(
            frozenset(names) - {"text", "question"},
            frozenset(needed),
            not needed or "text" in names,
        )
        for name in names:
            if name not in known and name not in needed:
                raise UserError(
                    f"{where}: placeholder {{{name}}} is not known{suggestion(name, known)}; known are "
                    f"{', '.join(f'{{{k}}}' for k in sorted(known))}. A literal brace is written twice"
                )
        for name in ("question", "text"):
            is_free = name == "text" and not self.columns.needs_text
            if name in known and not is_free and names.count(name) != 1:
                raise UserError(
                    f"{where}: {{{name}}} must occur once, not {names.count(name)} times"
                )
        if has_questions and "text" in names[names.index("question") :]:
            raise UserError(
                f"{where}: {{question}} must come after {{text}}: what stands before it is shared"
            )

    @property
    def names_title(self) -> bool:
        return any(name == "title" for _, name in self._pieces)

    def fill(self, document: Document, question: str = "") -> str:
        return "".join(self._filled(document, question))

    def text_begin(self, document: Document) -> int:
        """The character of what fill() gives that the document's text begins at. The template must have {text}."""
        before = next(i for i, (_, name) in enumerate(self._pieces) if name == "text")
        pieces = self._filled(document, "")
        return sum(map(len, pieces[: 2 * before + 1]))

    def _filled(self, document: Document, question: str) -> list[str]:
        """The literal text before each placeholder, and what stands for it."""
        place = document.place or Place(document.name)
        values = {
            "name": document.name,
            "book": place.book,
            "title": place.title,
            "part": str(place.part),
            "parts": str(place.parts),
            **document.columns,
        }
        values.update(text=document.text, question=question)
        filled = []
        for literal, name in self._pieces:
            if name is not None and name not in values:
                reason = f"has no column '{name}', which the template names"
                raise BadInput(document.origin, reason, document.name)
            filled += [literal, "" if name is None else values[name]]
        return filled
