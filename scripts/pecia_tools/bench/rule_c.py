# SPDX-License-Identifier: Apache-2.0
"""The empirical rule of pass-KV and pass-Q: h = a·ln T + b·ln(T / (T + P)) + c, of T new and P cached tokens; keys
travel where h is above 0. Fitted to measured times of both, it holds for their machine, model and number of ranks.
Source: Context Parallelism for Scalable Million-Token Inference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FEWEST = 4  # cells, one more than coefficients


@dataclass(frozen=True)
class Cell:
    tokens: int
    cached: int
    pass_kv_s: float
    pass_q_s: float

    def terms(self) -> list[float]:
        return [np.log(self.tokens), np.log(self.tokens / (self.tokens + self.cached)), 1.0]

    def is_kv(self) -> bool:
        return self.pass_kv_s < self.pass_q_s


@dataclass(frozen=True)
class RuleC:
    a: float
    b: float
    c: float

    def h(self, cell: Cell) -> float:
        return float(np.dot(cell.terms(), (self.a, self.b, self.c)))

    def is_right(self, cell: Cell) -> bool:
        return (self.h(cell) > 0) == cell.is_kv()


def fit(cells: Sequence[Cell]) -> RuleC:
    """By least squares of ln(pass-Q's time / pass-KV's), so cells that differ more count more. Where all cells have the
    same T + P, ln T and the miss rate say the same, and of all fits it is the one with the smallest coefficients."""
    ratios = [np.log(cell.pass_q_s / cell.pass_kv_s) for cell in cells]
    found = np.linalg.lstsq(np.array([cell.terms() for cell in cells]), np.array(ratios), rcond=1e-9)[0]
    return RuleC(*(float(value) for value in found))


def held_out(cells: Sequence[Cell]) -> int:
    """For how many cells a rule that is fitted to the others names the faster way."""
    return sum(fit([*cells[:i], *cells[i + 1 :]]).is_right(cell) for i, cell in enumerate(cells))


def in_words(cells: Sequence[Cell]) -> str:
    if len(cells) < FEWEST:
        return f"No empirical rule: {len(cells)} cells, and a fit needs {FEWEST}."
    rule = fit(cells)
    right = sum(rule.is_right(cell) for cell in cells)
    return (
        f"Empirical rule, fitted on these cells: h = {rule.a:+.3f}·ln T {rule.b:+.3f}·ln(T / (T + P)) {rule.c:+.3f}, "
        f"pass_kv where h > 0. It names the faster way in {right} of {len(cells)} cells, and in {held_out(cells)} when "
        "each is left out of the fit."
    )
