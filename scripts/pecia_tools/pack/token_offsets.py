# SPDX-License-Identifier: Apache-2.0
"""The tokens of long texts, and where they are. A book is encoded in pieces, since an encoding takes hundreds of bytes
a token.

Tokenizers look only a little ahead and back. So pieces overlap, and two of them are joined where both have the same
tokens in the middle of what they share:

    text     … the scribe copies the pecia and returns it …
    piece 1  … the scribe copies the pecia and re
    piece 2              ies the pecia and returns it …
    same in both            [the pecia and]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import numpy as np
from tokenizers import Encoding, Tokenizer

from ..tokenizer_limits import panics_told

PIECE = 250_000  # characters
OVERLAP = 8_000
AT_ONCE = 4  # pieces, in all threads
BEGIN, END, ID = 0, 1, 2  # columns of tokens, int32 [tokens, 3]


@dataclass(frozen=True)
class LongEncoding:
    """What an Encoding says of a long text, in a fraction of the memory."""

    ids: list[int]
    offsets: np.ndarray  # int32 [tokens, 2], characters [begin, end)


AnyEncoding = Union[Encoding, LongEncoding]


def token_offsets(
    tokenizer: Tokenizer, texts: Sequence[str], piece: int = PIECE, overlap: int = OVERLAP
) -> list[np.ndarray]:
    """For each text the characters [begin, end) of its tokens, int32 [tokens, 2], without special tokens that the
    tokenizer adds. The tokens are those of the whole text."""
    short = [text for text in texts if len(text) <= piece]
    found = iter(_encode(tokenizer, short))
    return [
        (next(found) if len(text) <= piece else _in_pieces(tokenizer, text, piece, overlap))[:, :ID]
        for text in texts
    ]


def encode_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    add_special_tokens: bool,
    piece: int = PIECE,
    overlap: int = OVERLAP,
) -> list[AnyEncoding]:
    """What encode_batch gives; of long texts as LongEncoding, where the special tokens that the tokenizer adds stand
    around the text."""
    around = _added_around(tokenizer) if add_special_tokens else ([], [])
    longest = piece if around is not None else max(map(len, texts), default=0)
    short = [text for text in texts if len(text) <= longest]
    with panics_told():
        found: Any = iter(tokenizer.encode_batch(short, add_special_tokens=add_special_tokens))
    encodings: list[AnyEncoding] = []
    for text in texts:
        if len(text) <= longest:
            encodings.append(next(found))
            continue
        assert around is not None
        before, after = around
        tokens = _in_pieces(tokenizer, text, piece, overlap)
        ids = [*before, *tokens[:, ID].tolist(), *after]
        # As in an Encoding, tokens that stand for no character are at the beginning.
        offsets = np.pad(tokens[:, :ID], ((len(before), len(after)), (0, 0)))
        encodings.append(LongEncoding(ids, offsets))
    return encodings


def _added_around(tokenizer: Tokenizer) -> Optional[tuple[list[int], list[int]]]:
    """The special tokens that the tokenizer adds before and after a text; None: it does otherwise."""
    plain, full = (tokenizer.encode("a", add_special_tokens=add).ids for add in (False, True))
    for begin in range(len(full) - len(plain) + 1):
        if full[begin : begin + len(plain)] == plain:
            return full[:begin], full[begin + len(plain) :]
    return None


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    with panics_told():
        encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return [
        np.column_stack(
            (np.array(e.offsets, dtype=np.int32).reshape(-1, 2), np.array(e.ids, dtype=np.int32))
        )
        for e in encodings
    ]


def _in_pieces(tokenizer: Tokenizer, text: str, piece: int, overlap: int) -> np.ndarray:
    if len(text) > np.iinfo(np.int32).max:
        raise ValueError(f"a text of {len(text)} characters: at most 2^31 − 1 can be cut")
    begins = list(range(0, len(text) - overlap, piece - overlap))
    found: list[np.ndarray] = []
    for first in range(0, len(begins), AT_ONCE):
        some = begins[first : first + AT_ONCE]
        pieces = _encode(tokenizer, [text[begin : begin + piece] for begin in some])
        for begin, tokens in zip(some, pieces):
            tokens[:, :ID] += begin
            if not found:
                found.append(tokens)
                continue
            joint = _joint(found[-1], tokens, begin, overlap)
            if joint is None:  # a word longer than an overlap, for example
                return _encode(tokenizer, [text])[0]
            found[-1] = found[-1][: joint[0]]
            found.append(tokens[joint[1] :])
    return np.concatenate(found)


def _joint(
    one: np.ndarray, other: np.ndarray, begin: int, overlap: int
) -> Optional[tuple[int, int]]:
    """The first token of each piece in the middle half of what they share; None if they differ there."""
    edges = (begin + overlap // 4, begin + overlap - overlap // 4)
    a, b = (np.searchsorted(tokens[:, BEGIN], edges) for tokens in (one, other))
    same = a[1] > a[0] and np.array_equal(one[a[0] : a[1]], other[b[0] : b[1]])
    return (int(a[0]), int(b[0])) if same else None
