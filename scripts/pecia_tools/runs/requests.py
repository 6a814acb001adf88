# SPDX-License-Identifier: Apache-2.0
"""The requests of a run: their turns in the results, and what the prompt shards say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Optional

from ..command import UserError
from .prompt_shard import Origin, PromptShard
from .results import Results, Turn


@dataclass(frozen=True)
class Request:
    request_id: str
    turns: list[Turn]
    origin: Origin
    shard: Optional[PromptShard]  # None: the prompts are not at hand

    @property
    def generating(self) -> list[Turn]:
        """The shared document of a fork generates nothing and is of interest only when it failed."""
        return [
            turn
            for turn in self.turns
            if turn.gives_text and (turn.slots > 0 or turn.state == "failed")
        ]

    @property
    def producing(self) -> list[Turn]:
        """These, and turns that give vectors or scores."""
        generating = {turn.turn for turn in self.generating}
        return [turn for turn in self.turns if turn.turn in generating or not turn.gives_text]

    @property
    def is_done(self) -> bool:
        return all(turn.state == "done" for turn in self.turns)

    @property
    def is_part(self) -> bool:
        """Of a document that was cut into several."""
        return self.origin.book != "" and self.origin.num_parts > 1

    def stop_strings(self, turn: Turn) -> list[str]:
        own = self.shard.stop(turn.request, turn.turn) if self.shard is not None else None
        return list(turn.settings.get("generation.stop", [])) if own is None else own

    def truncated(self, turn: Turn) -> Optional[int]:
        """Tokens of the turn's own prompt that limits.over_length left out; None where nothing says."""
        if turn.truncated_tokens is not None or turn.state not in ("done", "partial"):
            return turn.truncated_tokens
        if self.shard is None:
            return None
        return max(0, self.shard.num_tokens(turn.request, turn.turn) - turn.prompt_tokens)

    def truncated_before_answer(self, turn: Turn) -> Optional[int]:
        """The same of all prompts that the answer follows from: the turn's own, and the ones before it."""
        total = 0
        for seen in self.turns[: turn.turn + 1]:
            if self._is_fork and seen.turn not in (0, turn.turn):
                continue
            own = self.truncated(seen)
            if own is None:
                return None
            total += own
        return total

    @property
    def _is_fork(self) -> bool:
        if self.shard is not None:
            return self.shard.is_fork
        return self.turns[0].slots == 0 and self.turns[0].gives_text


def read_requests(results: Results, shards: Sequence[PromptShard]) -> list[Request]:
    """In input order. `shards` are the run's, or none."""
    requests = []
    for request_id, group in groupby(results.turns(), key=lambda turn: turn.request_id):
        turns = list(group)
        shard = _shard_of(turns[0], shards, results)
        origin = shard.origin(turns[0].request) if shard is not None else Origin()
        requests.append(Request(request_id, turns, origin, shard))
    return requests


def _shard_of(turn: Turn, shards: Sequence[PromptShard], results: Results) -> Optional[PromptShard]:
    if not shards:
        return None
    if not 0 <= turn.shard < len(shards):
        raise UserError(
            f"{results.path}: request '{turn.request_id}' is of input {turn.shard}, but the run has "
            f"{len(shards)}; the file is damaged"
        )
    shard = shards[turn.shard]
    if (
        not 0 <= turn.request < shard.num_requests
        or shard.request_id(turn.request) != turn.request_id
    ):
        raise UserError(
            f"{shard.path}: row {turn.request} is not request '{turn.request_id}' of {results.path}; "
            "they do not belong together"
        )
    return shard
