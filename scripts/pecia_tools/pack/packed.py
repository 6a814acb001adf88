# SPDX-License-Identifier: Apache-2.0
"""Requests as tokens, ready to be written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
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
    is_apart: bool = False  # each turn becomes a request of its own
    num_choices: int = 1  # of each of them
    choice: int = 0  # which of them this is
    custom_id: str = ""  # what these have in common; "": the name
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
        if self.is_apart:
            return max(lengths)
        return lengths[0] + max(lengths[1:], default=0) if self.is_fork else sum(lengths)

    def choices(self) -> Iterator[PackedRequest]:
        """Each input as often as it is asked for, with names and seeds of their own."""
        inputs = [[turn] for turn in self.turns] if self.is_apart else [self.turns]
        number = len(inputs) * self.num_choices
        if number == 1:
            yield self
            return
        for choice, (turns, times) in enumerate(product(inputs, range(self.num_choices))):
            yield replace(
                self,
                name=f"{self.name}~{choice + 1}",
                turns=[replace(turn, sampling=_reseeded(turn.sampling, times)) for turn in turns],
                num_choices=number,
                choice=choice,
                custom_id=self.name,
            )


def _reseeded(sampling: Sampling, choice: int) -> Sampling:
    """Without a seed, one is made of the request's name. The largest seed is followed by the smallest."""
    if sampling.seed is None:
        return sampling
    span = 2**64 - 1  # seeds from LEAST_SEED to 2^63 - 1
    return replace(sampling, seed=(sampling.seed - LEAST_SEED + choice) % span + LEAST_SEED)
