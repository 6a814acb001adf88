# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import unittest

from pecia_tools.bench.rule_c import Cell, RuleC, fit, held_out, in_words

TRUTH = RuleC(1.059, 1.145, -12.112)  # the paper's, with the signs by which it names its own rows


def cells(*totals: int) -> list[Cell]:
    """Times whose ratio is that of TRUTH."""
    found = []
    for total in totals:
        for tokens in (total // 64, total // 16, total // 4, total // 2, total):
            cell = Cell(tokens, total - tokens, 1, 1)
            found.append(Cell(tokens, total - tokens, 1, math.exp(TRUTH.h(cell))))
    return found


class Fit(unittest.TestCase):
    def test_finds_the_rule_that_made_the_times(self) -> None:
        found = fit(cells(32_000, 128_000, 512_000))
        for ours, theirs in ((found.a, TRUTH.a), (found.b, TRUTH.b), (found.c, TRUTH.c)):
            self.assertAlmostEqual(ours, theirs, places=6)

    def test_names_the_faster_way_also_with_one_length(self) -> None:
        of_one = cells(128_000)
        self.assertGreater(len({cell.is_kv() for cell in of_one}), 1, "both ways are faster somewhere")
        self.assertEqual(sum(fit(of_one).is_right(cell) for cell in of_one), 5)
        self.assertGreaterEqual(held_out(of_one), 4)

    def test_says_it_in_words(self) -> None:
        text = in_words(cells(32_000, 128_000))
        self.assertIn("h = +1.059·ln T +1.145·ln(T / (T + P)) -12.112", text)
        self.assertIn("10 of 10 cells, and in 10 when each is left out", text)
        self.assertIn("3 cells, and a fit needs 4", in_words(cells(32_000)[:3]))
