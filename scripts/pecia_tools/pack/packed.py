# SPDX-License-Identifier: Apache-2.0
"""Requests as tokens, ready to be written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Optional, Union

import numpy as np

from .inputs import Place, Sampling
from .request_options import LEAST_SEED
from .structure import Position

Span = tuple[int, int]  # [begin, end)


@dataclass(frozen=True)
class PackedTurn:
    tokens: Union[Sequence[int], np.ndarray]
    sampling: Sampling
    continuations: Sequence[Sequence[int]] = ()  # of `sampling`, as tokens


@dataclass(frozen=True)
class PackedRequest:
    name: str
    origin: str
    turns: list[PackedTurn]
    arrival_s: Optional[float] = None
    is_fork: bool = False  # later turns follow the first one, not each other
    num_choices: int = 1
    choice: int = 0  # which of them this is
    custom_id: str = ""  # what several choices have in common; "": the name
    endpoint: str = ""
    dimensions: Optional[int] = None  # as in Completion
    encoding_format: str = ""
    place: Optional[Place] = None
    document_title: str = ""  # as the document's file names itself
    positions: Sequence[tuple[Position, Span]] = ()  # with its tokens in the first turn

    @property
    def context_tokens(self) -> int:
        """Of the longest prompt, without the answers before it."""
        lengths = [len(turn.tokens) for turn in self.turns]
        return lengths[0] + max(lengths[1:], default=0) if self.is_fork else sum(lengths)

    def choices(self) -> Iterator[PackedRequest]:
        """The request as often as it is asked for, with names and seeds of their own."""
        if self.num_choices == 1:
            yield self
            return
        for choice in range(self.num_choices):
            turns = [
                replace(turn, sampling=_reseeded(turn.sampling, choice)) for turn in self.turns
            ]
            name = f"{self.name}~{choice + 1}"
            yield replace(self, name=name, turns=turns, choice=choice, custom_id=self.name)


def _reseeded(sampling: Sampling, choice: int) -> Sampling:
    """Without a seed, one is made of the request's name. The largest seed is followed by the smallest."""
    if sampling.seed is None:
        return sampling
    span = 2**64 - 1  # seeds from LEAST_SEED to 2^63 - 1
    return replace(sampling, seed=(sampling.seed - LEAST_SEED + choice) % span + LEAST_SEED)
