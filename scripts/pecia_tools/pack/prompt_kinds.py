# SPDX-License-Identifier: Apache-2.0
"""Kinds of requests: each as texts to encode, and how its turns are made of their tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from ..command import UserError
from .inputs import Completion, Sampling, Source
from .packed import PackedTurn
from .token_offsets import AnyEncoding

SHARED_TAIL = 2000  # characters before a question that are encoded with it
SAME_TOKENS = 64  # that must come out the same before a question, in whichever surroundings


class Prompt(ABC):
    """A request as texts to encode, and how its turns are made of their tokens."""

    is_fork = False
    is_apart = False  # each turn is a request of its own

    def __init__(self, source: Source, texts: list[str], special_tokens: list[bool]) -> None:
        self.source = source
        self.texts = texts
        self.special_tokens = special_tokens  # per text: whether the tokenizer adds its own (BOS)
        self.document_begin: Optional[int] = None  # character of texts[0]; None: it is in no text

    @abstractmethod
    def turns(self, encodings: list[AnyEncoding]) -> Optional[list[PackedTurn]]:
        """None: the texts do not suffice, those of in_full() are needed."""

    def in_full(self) -> Prompt:
        return self


class ChainPrompt(Prompt):
    """One turn, or turns that follow each other. With a chat template, the text of a later turn begins with
    the token that ends an answer; the answer brings it along, so it is left out here."""

    def __init__(
        self,
        source: Source,
        texts: list[str],
        samplings: list[Sampling],
        stop_token_ids: Optional[list[int]],
    ) -> None:
        is_plain = stop_token_ids is None
        super().__init__(source, texts, [is_plain and turn == 0 for turn in range(len(texts))])
        self._samplings = samplings
        self._stop_token_ids = stop_token_ids

    def turns(self, encodings: list[AnyEncoding]) -> list[PackedTurn]:
        packed = []
        for turn, (encoding, sampling) in enumerate(zip(encodings, self._samplings)):
            ids = encoding.ids
            if turn > 0 and self._stop_token_ids is not None:
                if not ids or ids[0] not in self._stop_token_ids:
                    raise UserError(
                        f"{self.source.origin}: after an assistant message the chat template writes "
                        f"{self.texts[turn][:20]!r}, which does not begin with one of the model's stop tokens "
                        f"({self._stop_token_ids}), so turns cannot be joined to answers. Pack them as separate "
                        "requests, or correct eos_token_id in generation_config.json"
                    )
                ids = ids[1:]
            packed.append(PackedTurn(ids, sampling))
        return packed


class CompletionPrompt(Prompt):
    """Texts with the tokenizer's own special tokens, or tokens as given."""

    is_apart = True

    def __init__(self, source: Completion, sampling: Sampling) -> None:
        texts = [prompt for prompt in source.prompts if isinstance(prompt, str)]
        super().__init__(source, texts, [True] * len(texts))
        self._prompts = source.prompts
        self._sampling = sampling

    def turns(self, encodings: list[AnyEncoding]) -> list[PackedTurn]:
        encoded = iter(encodings)
        return [
            PackedTurn(
                next(encoded).ids if isinstance(prompt, str) else prompt, self._sampling
            )
            for prompt in self._prompts
        ]


class ForkPrompt(Prompt):
    """Questions about one document. A question's prompt is what the tokenizer makes of the whole text. The tokens that
    all prompts have in common before the question are the shared first turn.

    A long document is encoded once, with the first question. For each question only the end of the document is encoded
    again: where its tokens are those of the whole text for a while, what stands further ahead does not matter.
    Otherwise turns() gives nothing, and in_full() is to be encoded.
    """

    is_fork = True

    def __init__(
        self,
        source: Source,
        shared_text: str,
        rests: list[str],
        samplings: list[Sampling],
        special_tokens: bool,
        is_full: bool = False,
    ) -> None:
        self._shared_text = shared_text
        self._rests = rests
        self._samplings = samplings
        self._special_tokens = special_tokens
        self._tail_begin = 0 if is_full or len(rests) == 1 else _tail_begin(shared_text)
        texts = [shared_text + rest for rest in rests]
        special = [special_tokens] * len(texts)
        if self._tail_begin > 0:
            tails = [text[self._tail_begin :] for text in texts]
            texts, special = [texts[0], *tails], [special_tokens] + [False] * len(tails)
        super().__init__(source, texts, special)

    def in_full(self) -> Prompt:
        return ForkPrompt(
            self.source, self._shared_text, self._rests, self._samplings, self._special_tokens, True
        )

    def turns(self, encodings: list[AnyEncoding]) -> Optional[list[PackedTurn]]:
        head: list[int] = []
        if self._tail_begin == 0:
            prompts = _before(encodings, len(self._shared_text))
        else:
            head, prompts = self._head(encodings[0].ids, encodings[1:])
            if not head:
                return None
        first, shared = prompts[0]
        for tokens, before in prompts[1:]:
            shared = min(shared, before, _common_length(first, tokens))
        document = head + first[:shared]
        if not document:
            raise UserError(f"{self.source.origin}: the questions' prompts have no token in common")
        none = 0 if self._samplings[0].max_new_tokens is not None else None
        sampling = replace(self._samplings[0], max_new_tokens=none, stop=None, logit_bias=None)
        return [PackedTurn(document, sampling)] + [
            PackedTurn(tokens[shared:], sampling)
            for (tokens, _), sampling in zip(prompts, self._samplings)
        ]

    def _head(
        self, whole: list[int], encodings: list[AnyEncoding]
    ) -> tuple[list[int], list[tuple[list[int], int]]]:
        """The tokens that all prompts begin with, and for each what follows them and how many of it end before the
        question. No tokens where a tail does not go as the whole text."""
        tails = _before(encodings, len(self._shared_text) - self._tail_begin)
        first, before = tails[0]
        same = _common_length(whole[::-1], first[::-1])
        start = len(first) - same  # from here on the first tail goes as the whole text
        for tail, tail_before in tails:
            if min(before, tail_before, _common_length(first, tail)) - start < SAME_TOKENS:
                return [], []
        return whole[: len(whole) - same], [(tail[start:], n - start) for tail, n in tails]


def _before(encodings: list[AnyEncoding], character: int) -> list[tuple[list[int], int]]:
    """Each encoding's tokens, and how many of them end up to a character."""
    return [
        (encoding.ids, bisect_right([end for _, end in encoding.offsets], character))
        for encoding in encodings
    ]


def _tail_begin(text: str) -> int:
    """Where a line, else a word, begins before the last characters; 0 in a short text."""
    if len(text) < 4 * SHARED_TAIL:
        return 0
    latest = len(text) - SHARED_TAIL
    line = text.rfind("\n", 0, latest) + 1
    return line if latest - line < SHARED_TAIL else text.rfind(" ", 0, latest) + 1


def _common_length(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
