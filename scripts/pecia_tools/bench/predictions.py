# SPDX-License-Identifier: Apache-2.0
"""How likely a run took the tokens of its prompts to be, and how two runs differ in that."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np

from ..command import UserError
from ..runs.results import STATES, Results

ROWS_AT_ONCE = 512  # of a vocabulary's log-probabilities


@dataclass(frozen=True)
class Predictions:
    """Of every prompt token but those that nothing stands before."""

    logprobs: np.ndarray  # float64 [tokens], natural
    most_likely: np.ndarray  # int32 [tokens]

    def __getitem__(self, tokens: slice) -> Predictions:
        return Predictions(self.logprobs[tokens], self.most_likely[tokens])


def read_predictions(folder: Path) -> Predictions:
    """Of a run with generation.prompt_logprobs of at least 1, or -1, whose requests have one turn each."""
    results = Results(folder)
    try:
        columns = results.columns(["state", "prompt_slot_offsets", "prompt_token_logprob"])
        open_turns = np.flatnonzero(columns["state"] != STATES.index("done"))
        if open_turns.size > 0:
            raise UserError(f"{folder}: turn {open_turns[0]} is not done")
        predicted = _predicted(columns)
        logprobs = columns["prompt_token_logprob"][predicted].astype(np.float64)
        wrong = int(np.count_nonzero(~np.isfinite(logprobs)))
        if wrong > 0:
            raise UserError(
                f"{folder}: {wrong} of {logprobs.size} log-probabilities are not numbers"
            )
        if results.has("prompt_top_tokens"):
            most_likely = results.columns(["prompt_top_tokens"])["prompt_top_tokens"][:, 0]
        else:
            vocabularies = results.blocks("prompt_top_logprobs", ROWS_AT_ONCE)
            most_likely = np.concatenate([np.argmax(rows, axis=1) for rows in vocabularies])
        return Predictions(logprobs, most_likely[predicted])
    finally:
        results.close()


def _predicted(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Whether something stands before each prompt token."""
    predicted = np.ones(columns["prompt_token_logprob"].size, dtype=bool)
    predicted[columns["prompt_slot_offsets"][:-1]] = False
    return predicted


def divergence(folder: Path, reference: Path, tokens: Optional[int] = None) -> dict[str, float]:
    """The mean Kullback-Leibler divergence of a run's predictions from those of the reference, in nats per token. Both
    runs have generation.prompt_logprobs -1. On a text that is as the reference predicts it, the expected difference of
    nll is this. From token to token it varies far less. The standard error takes the tokens for independent. `tokens`:
    the first ones that are predicted; None: all."""
    found, expected = Results(folder), Results(reference)
    try:
        predicted = _predicted(found.columns(["prompt_slot_offsets", "prompt_token_logprob"]))
        pairs = zip(
            *(of.blocks("prompt_top_logprobs", ROWS_AT_ONCE) for of in (found, expected)),
            strict=True,
        )
        values = np.concatenate([_divergences(ours, theirs) for ours, theirs in pairs])
        values = values[predicted][:tokens]
    finally:
        found.close()
        expected.close()
    if not np.all(np.isfinite(values)):
        raise UserError(f"{folder}: a divergence from {reference} is not a number")
    error = np.std(values, ddof=1) / math.sqrt(values.size) if values.size > 1 else math.nan
    return {"divergence": float(np.mean(values)), "divergence_error": float(error)}


def _divergences(found: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Of log-probabilities [tokens, vocabulary], for each token."""
    expected = reference.astype(np.float64)
    result: np.ndarray = np.sum(np.exp(expected) * (expected - found), axis=1)
    return result


def figures(found: Predictions) -> dict[str, Any]:
    """nll: mean negative log-likelihood in nats per token."""
    nll = -float(np.mean(found.logprobs))
    return {"tokens": found.logprobs.size, "nll": nll, "perplexity": math.exp(nll)}


def differences(found: Predictions, reference: Predictions) -> dict[str, float]:
    """Of the same tokens. The standard error takes the tokens' differences for independent."""
    more = reference.logprobs - found.logprobs
    return {
        "difference": float(np.mean(more)),
        "difference_error": float(np.std(more, ddof=1) / math.sqrt(more.size))
        if more.size > 1
        else math.nan,
        "largest": float(np.max(np.abs(more))),
        "same_most_likely": float(np.mean(found.most_likely == reference.most_likely)),
    }
