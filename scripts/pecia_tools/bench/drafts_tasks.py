# SPDX-License-Identifier: Apache-2.0
"""Requests whose answers copy from their prompts more or less, and how much of an answer is a copy."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ..command import UserError

WORDS = {"copy": 120}  # of a passage; an answer has to have room for the whole copy
PASSAGE_WORDS = 300
COPIED = 8  # tokens in a row that stand before are a copy, not the language's common words

Body = dict[str, Any]


def _asked(text: str) -> Body:
    return {"messages": [{"role": "user", "content": text}]}


def summary(passage: str) -> Body:
    return _asked(f"{passage}\n\nSummarise this text in a few sentences.")


def quotation(passage: str) -> Body:
    return _asked(
        f"{passage}\n\nWhat happens in this text? Answer with quotations: copy the three most important sentences "
        "word for word, each in quotation marks."
    )


def extraction(passage: str) -> Body:
    # So short that the answer is whole before it is cut.
    fields = {"who": {"type": "string", "maxLength": 30}, "quote": {"type": "string", "maxLength": 100}}
    item = {"type": "object", "properties": fields, "required": list(fields)}
    schema = {"type": "array", "items": item, "minItems": 2, "maxItems": 3}
    shape = {"type": "json_schema", "json_schema": {"name": "people", "schema": schema}}
    ask = "List the people of this text as JSON, each with a sentence about them, copied word for word."
    return {**_asked(f"{passage}\n\n{ask}"), "response_format": shape}


def copy(passage: str) -> Body:
    return _asked(f"Repeat the following text word for word, and nothing else.\n\n{passage}")


TASKS: dict[str, Callable[[str], Body]] = {
    "summary": summary,
    "quotation": quotation,
    "extraction": extraction,
    "copy": copy,
}


def passages(text: str, count: int, words: int) -> list[str]:
    """Evenly out of the text, each from the beginning of a paragraph."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text)]
    paragraphs = [paragraph for paragraph in paragraphs if paragraph]
    if sum(len(paragraph.split()) for paragraph in paragraphs) < words:
        raise UserError(f"the text has fewer than {words} words")
    found = []
    for number in range(count):
        at = number * len(paragraphs) // count
        taken: list[str] = []
        while len(taken) < words:
            taken += paragraphs[at % len(paragraphs)].split()
            at += 1
        found.append(" ".join(taken[:words]))
    return found


def requests(task: str, text: str, count: int) -> list[Body]:
    return [TASKS[task](each) for each in passages(text, count, WORDS.get(task, PASSAGE_WORDS))]


def copied_tokens(prompt: Sequence[int], answer: Sequence[int]) -> int:
    """Tokens of the answer that lie in COPIED tokens in a row which stand in the prompt, or earlier in the answer."""
    before = {tuple(prompt[i : i + COPIED]) for i in range(len(prompt) - COPIED + 1)}
    copied = 0
    counted_to = 0
    for begin in range(len(answer) - COPIED + 1):
        words = tuple(answer[begin : begin + COPIED])
        if words in before:
            copied += begin + COPIED - max(begin, counted_to)
            counted_to = begin + COPIED
        before.add(words)
    return copied
