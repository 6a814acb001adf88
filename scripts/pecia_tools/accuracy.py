# SPDX-License-Identifier: Apache-2.0
"""How likely a run took the tokens of its prompts to be, and how two runs differ in that."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .command import UserError
from .results import STATES, Results


@dataclass(frozen=True)
class Predictions:
    """Of every prompt token but those that nothing stands before."""

    logprobs: np.ndarray  # float64 [tokens], natural
    most_likely: np.ndarray  # int32 [tokens]


def read_predictions(folder: Path) -> Predictions:
    """Of a run with generation.prompt_logprobs of at least 1 whose requests have one turn each."""
    results = Results(folder)
    try:
        columns = results.columns(
            ["state", "prompt_slot_offsets", "prompt_token_logprob", "prompt_top_tokens"]
        )
    finally:
        results.close()
    open_turns = np.flatnonzero(columns["state"] != STATES.index("done"))
    if open_turns.size > 0:
        raise UserError(f"{folder}: turn {open_turns[0]} is not done")
    predicted = np.ones(columns["prompt_token_logprob"].size, dtype=bool)
    predicted[columns["prompt_slot_offsets"][:-1]] = False
    logprobs = columns["prompt_token_logprob"][predicted].astype(np.float64)
    wrong = int(np.count_nonzero(~np.isfinite(logprobs)))
    if wrong > 0:
        raise UserError(f"{folder}: {wrong} of {logprobs.size} log-probabilities are not numbers")
    return Predictions(logprobs, columns["prompt_top_tokens"][predicted, 0])


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
