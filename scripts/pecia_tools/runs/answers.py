# SPDX-License-Identifier: Apache-2.0
"""The text of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import numpy as np
from tokenizers import Tokenizer

from .results import Turn


def answer_text(tokenizer: Tokenizer, turn: Turn, tokens: np.ndarray) -> str:
    """Without special tokens, and without the token or the string that stopped it."""
    if _was_stopped_by_string(turn):
        return _decode(tokenizer, tokens).encode()[: turn.text_bytes].decode(errors="ignore")
    return _decode(tokenizer, tokens[:-1] if turn.finish_reason == "stop" else tokens)


def stop_reason(
    tokenizer: Tokenizer, turn: Turn, tokens: np.ndarray, stop_strings: Sequence[str]
) -> Optional[str]:
    """The stop string that ended the answer, as far as it can be told: a run ends at the one that is whole first."""
    if not _was_stopped_by_string(turn):
        return None
    after = _decode(tokenizer, tokens).encode()[turn.text_bytes :]
    found = [string for string in stop_strings if string and after.startswith(string.encode())]
    return min(found, key=len, default=None)


def _was_stopped_by_string(turn: Turn) -> bool:
    return turn.finish_reason == "stop" and turn.text_bytes >= 0


def _decode(tokenizer: Tokenizer, tokens: np.ndarray) -> str:
    return tokenizer.decode(tokens.tolist(), skip_special_tokens=True)
