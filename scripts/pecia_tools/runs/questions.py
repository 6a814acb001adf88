# SPDX-License-Identifier: Apache-2.0
"""What a turn asked, out of its prompt's tokens."""

from __future__ import annotations

import re

import numpy as np

from ..command import UserError
from ..model_folder import ModelFolder
from ..pack.chat import ChatTemplate
from .requests import Request
from .results import Turn

# A prompt longer than this is shown by its beginning and its end: it holds a document.
LONGEST_TOKENS, HEAD_TOKENS, TAIL_TOKENS = 400, 60, 200
MARKS = ["PeciaQuestion0x", "PeciaQuestion1x"]


class Questions:
    """Takes off what the model's chat template puts around a message. Of a prompt that was packed without the
    template, or by another one, nothing but special tokens is taken off."""

    def __init__(self, model: ModelFolder) -> None:
        self._tokenizer = model.tokenizer
        added = model.tokenizer.get_added_tokens_decoder().values()
        special = sorted((t.content for t in added if t.special and t.content), key=len)
        self._special = re.compile("|".join(map(re.escape, reversed(special))) or r"(?!)")
        self._before, self._after = _wrapping(model)

    def of_turn(self, request: Request, turn: Turn) -> str:
        """Empty where the request has no other turn, and where the prompts are not at hand."""
        if len(request.turns) == 1 or request.shard is None:
            return ""
        return self.text(request.shard.tokens(turn.request, turn.turn))

    def text(self, tokens: np.ndarray) -> str:
        if len(tokens) <= LONGEST_TOKENS:
            return self._clean(self._message(self._decode(tokens)))
        tail, is_wrapped = self._without_end(self._decode(tokens[-TAIL_TOKENS:]))
        if is_wrapped and self._before and self._before in tail:
            return self._clean(tail.rpartition(self._before)[2])
        head = self._decode(tokens[:HEAD_TOKENS])
        if is_wrapped and self._before:
            head = head.rpartition(self._before)[2]
        left_out = len(tokens) - HEAD_TOKENS - TAIL_TOKENS
        # A character may have been cut in two.
        head, tail = self._clean(head).rstrip("\ufffd"), self._clean(tail).lstrip("\ufffd")
        return f"{head} [… {left_out:,} tokens …] {tail}"

    def _decode(self, tokens: np.ndarray) -> str:
        return self._tokenizer.decode(tokens.tolist(), skip_special_tokens=False)

    def _without_end(self, text: str) -> tuple[str, bool]:
        """The text without what the template puts after a message, and whether it was there."""
        stripped = text.rstrip()
        if not self._after or not stripped.endswith(self._after):
            return text, False
        return stripped[: -len(self._after)], True

    def _message(self, text: str) -> str:
        message, is_wrapped = self._without_end(text)
        return message.rpartition(self._before)[2] if is_wrapped and self._before else message

    def _clean(self, text: str) -> str:
        return self._special.sub("", text).strip()


def _wrapping(model: ModelFolder) -> tuple[str, str]:
    """What the template puts before and after a user's message, without blank space; empty without a template."""
    if model.chat_template_source is None:
        return "", ""
    try:
        template = ChatTemplate(model)
        try:
            # Before a second message stands no system prompt, but the token that ended the answer.
            before, _, after = template.chain([], MARKS)[1].partition(MARKS[1])
        except UserError:  # a template that cannot make chains
            message = {"role": "user", "content": MARKS[0]}
            before, _, after = template.render([message]).partition(MARKS[0])
    except UserError:  # nor render a lone message: then no prompt was made by it
        return "", ""
    for stop in model.stop_token_ids:
        before = before.removeprefix(model.tokenizer.id_to_token(stop) or "")
    return before.strip(), after.strip()
