# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import unittest
from typing import Any

from pecia_tools.bench.csa import rows
from pecia_tools.command import UserError


def line(ring: str, seconds: float, **more: Any) -> dict[str, Any]:
    return {
        "tokens": 8,
        "ranks": 2,
        "grid": "CP 2 × SP 1 × TP 1, base",
        "ring": ring,
        "drop": 0.0,
        "levels": 0,
        "pipeline": 1,
        "seconds": {"median": seconds},
        "stages_s_of_rank_0": [["attention", 1.0], ["level_tokens", 0.5], ["level_outputs", 0.25]],
        "sent_bytes_of_layers": 2e6,
        **more,
    }


class CsaReport(unittest.TestCase):
    def test_cases_are_named_and_held_against_levels_that_drop_nothing(self) -> None:
        found = rows(
            [
                line("pass_kv", 8.0),
                line("pass_kv", 6.0, grid="CP 1 × SP 2 × TP 1, base"),
                line("levels", 4.0, levels=2),
                line("levels", 2.0, levels=3, pipeline=4, drop=0.2),
                line("levels", 3.0, levels=3, pipeline=4, drop=0.2),
                line("levels", 1.0, levels=1),
                {"held_out_errors": [0.1]},
            ]
        )
        names, seconds, waits, relative = ([row[i] for row in found] for i in (0, 1, 3, 6))
        self.assertEqual(
            names,
            [
                "dense ring",
                "Ulysses",
                "2 levels, drop 0 %",
                "3 levels in 4 parts, drop 20 %",
                "1 level: each rank's tokens alone",
            ],
        )
        self.assertEqual(seconds, ["8.00", "6.00", "4.00", "2.50", "1.00"], "medians")
        self.assertEqual(set(waits), {"0.75"})
        self.assertEqual(relative, ["2.00", "1.50", "1.00", "0.62", "0.25"])

    def test_something_to_hold_against_is_needed(self) -> None:
        with self.assertRaisesRegex(UserError, "drop nothing"):
            rows([line("pass_kv", 1.0)])
