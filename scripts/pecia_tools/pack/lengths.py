# SPDX-License-Identifier: Apache-2.0
"""Requests that are longer than a limit: told, refused or left out."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Optional

from ..command import UserError
from .decoding import BadInput
from .packed import PackedRequest

NAMED = 5  # requests in the warning, the longest first
REMEDY = (
    "Cut documents with --split-tokens, let `pecia run` shorten prompts with limits.over_length, or extend the "
    "model's length with model.rope_scaling"
)


@dataclass
class LengthCheck:
    limit: Optional[int]  # tokens
    limit_name: str
    action: str  # warn, error or skip
    skipped: list[BadInput] = field(default_factory=list, init=False)
    _long: list[tuple[int, str]] = field(default_factory=list, init=False)
    _num_seen: int = field(default=0, init=False)

    def watch(self, requests: Iterable[PackedRequest]) -> Iterator[PackedRequest]:
        for request in requests:
            self._num_seen += 1
            tokens = request.context_tokens
            if self.limit is not None and tokens > self.limit:
                reason = f"the prompt of '{request.name}' has {tokens} tokens, more than {self.limit_name}"
                if self.action == "error":
                    raise UserError(
                        f"{request.origin}: {reason}. {REMEDY}; or leave out such requests with --over-length skip"
                    )
                if self.action == "skip":
                    self.skipped.append(BadInput(request.origin, reason, request.name))
                    continue
                self._long.append((tokens, request.name))
            yield request

    def warning(self) -> Optional[str]:
        if not self._long:
            return None
        longest = heapq.nlargest(NAMED, self._long)
        names = ", ".join(f"'{name}' ({tokens})" for tokens, name in longest)
        more = f" and {len(self._long) - NAMED} more" if len(self._long) > NAMED else ""
        return (
            f"{len(self._long)} of {self._num_seen} prompts have more tokens than {self.limit_name}: {names}{more}. "
            f"{REMEDY}. --over-length error refuses such prompts"
        )
