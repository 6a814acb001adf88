# SPDX-License-Identifier: Apache-2.0
"""Which tokens of a prompt hold a document's chapters and pages."""

from __future__ import annotations

from typing import Optional

import numpy as np

from .inputs import Document
from .packed import Span
from .structure import Position, positions
from .token_offsets import AnyEncoding

UNKNOWN = (-1, -1)


def located(
    document: Document, text_begin: Optional[int], encoding: AnyEncoding, num_tokens: int
) -> list[tuple[Position, Span]]:
    """Chapters and pages that lie in the document's text, each with its tokens among the first `num_tokens` of
    `encoding`. `text_begin`: the character of the encoded text that the document begins at; None: it is not known, and
    neither are the tokens. A token that has characters of two pages is the later one's."""
    if document.structure is None:
        return []
    begin = document.begin
    found = positions(document.structure, begin, begin + len(document.text))
    if text_begin is None or not found:
        return [(position, UNKNOWN) for position in found]
    # Where several tokens are bytes of one character, the last one ends it.
    ended = np.maximum.accumulate([end for _, end in encoding.offsets])
    shift = text_begin - begin
    edges = np.array([(p.begin + shift, p.end + shift) for p in found])
    tokens = np.minimum(np.searchsorted(ended, edges, side="right"), num_tokens)
    return [(p, (int(first), int(last))) for p, (first, last) in zip(found, tokens)]
