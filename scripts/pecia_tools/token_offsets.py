# SPDX-License-Identifier: Apache-2.0
"""Where the tokens of long texts are. A book is encoded in pieces, since an encoding takes hundreds of bytes a token.

Tokenizers look only a little ahead and back. So pieces overlap, and two of them are joined where both have the same
tokens in the middle of what they share:

    text     … the scribe copies the pecia and returns it …
    piece 1  … the scribe copies the pecia and re
    piece 2              ies the pecia and returns it …
    same in both            [the pecia and]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import numpy as np
from tokenizers import Tokenizer

PIECE = 250_000  # characters
OVERLAP = 8_000
AT_ONCE = 4  # pieces, in all threads


def token_offsets(
    tokenizer: Tokenizer, texts: Sequence[str], piece: int = PIECE, overlap: int = OVERLAP
) -> list[np.ndarray]:
    """For each text the characters [begin, end) of its tokens, int32 [tokens, 2], without special tokens that the
    tokenizer adds. The tokens are those of the whole text."""
    short = [text for text in texts if len(text) <= piece]
    found = iter(_encode(tokenizer, short))
    return [
        next(found) if len(text) <= piece else _in_pieces(tokenizer, text, piece, overlap)
        for text in texts
    ]


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return [np.array(e.offsets, dtype=np.int32).reshape(-1, 2) for e in encodings]


def _in_pieces(tokenizer: Tokenizer, text: str, piece: int, overlap: int) -> np.ndarray:
    if len(text) > np.iinfo(np.int32).max:
        raise ValueError(f"a text of {len(text)} characters: at most 2^31 − 1 can be cut")
    begins = list(range(0, len(text) - overlap, piece - overlap))
    found: list[np.ndarray] = []
    for first in range(0, len(begins), AT_ONCE):
        some = begins[first : first + AT_ONCE]
        pieces = _encode(tokenizer, [text[begin : begin + piece] for begin in some])
        for begin, offsets in zip(some, pieces):
            offsets += begin
            if not found:
                found.append(offsets)
                continue
            joint = _joint(found[-1], offsets, begin, overlap)
            if joint is None:  # a word longer than an overlap, for example
                return _encode(tokenizer, [text])[0]
            found[-1] = found[-1][: joint[0]]
            found.append(offsets[joint[1] :])
    return np.concatenate(found)


def _joint(
    one: np.ndarray, other: np.ndarray, begin: int, overlap: int
) -> Optional[tuple[int, int]]:
    """The first token of each piece in the middle half of what they share; None if they differ there."""
    edges = (begin + overlap // 4, begin + overlap - overlap // 4)
    a, b = (np.searchsorted(offsets[:, 0], edges) for offsets in (one, other))
    same = a[1] > a[0] and np.array_equal(one[a[0] : a[1]], other[b[0] : b[1]])
    return (int(a[0]), int(b[0])) if same else None
