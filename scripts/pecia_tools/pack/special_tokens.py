# SPDX-License-Identifier: Apache-2.0
"""Texts in which a special token is spelled out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..model_folder import ModelFolder
from .inputs import Conversation, Document, Source


class SpecialTokenWatch:
    """Counts texts that contain the writing of a special token, which the tokenizer then reads as that token."""

    def __init__(self, model: ModelFolder) -> None:
        writings = [
            t.content
            for t in model.tokenizer.get_added_tokens_decoder().values()
            if t.special and t.content
        ]
        longest_first = sorted(writings, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self.count = 0
        self.first = ""

    def watch(self, sources: Iterable[Source]) -> Iterator[Source]:
        for source in sources:
            found = next(filter(None, map(self._pattern.search, _texts_of(source))), None)
            if found:
                self.count += 1
                self.first = self.first or f"{found.group()} in {source.origin}"
            yield source


def _texts_of(source: Source) -> list[str]:
    if isinstance(source, Document):
        return [source.text]
    if isinstance(source, Conversation):
        return [text for text, _ in source.turns]
    return [prompt for prompt in source.prompts if isinstance(prompt, str)]
