# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import unittest
from typing import Any

from pecia_tools.bench import layout as bench_layout
from pecia_tools.bench.modes import mode, tables
from support import printed


def prefill(ring: str, tokens: int, seconds: float, rule: str) -> dict[str, Any]:
    return {
        "bench": "bench_prefill",
        "model": "m",
        "ranks": 4,
        "threads": 1,
        "grid": "CP 4 × SP 1 × TP 1, base",
        "ring": ring,
        "rule": rule,
        "tokens": tokens,
        "cached": 8192 - tokens,
        "seconds": {"median": seconds},
        "ring_flops": 1e9,
        "ring_bandwidth": 1e6,
        "all_to_all_bandwidth": 1e6,
    }


class ModesReport(unittest.TestCase):
    def test_modes_are_named_by_the_degrees_in_use(self) -> None:
        line = {"ranks": 4, "threads": 1, "grid": "CP 2 × SP 1 × TP 2, sp_tp", "ring": "pass_q"}
        self.assertEqual(mode(line), "CP 2 × TP 2 pass_q sp_tp")
        self.assertEqual(mode({**line, "grid": "CP 1 × SP 4 × TP 1, base"}), "SP 4")
        self.assertEqual(mode({**line, "ranks": 1, "threads": 2}), "1 rank × 2 threads")

    def test_the_rule_is_judged_where_the_two_rings_differ(self) -> None:
        cases = {82: (0.3, 0.1, "pass_q"), 100: (0.3, 0.1, "pass_kv"), 200: (1.0, 1.04, "pass_q")}
        lines = []
        for tokens, (kv, q, rule) in cases.items():
            lines += [prefill("pass_kv", tokens, kv, rule), prefill("pass_q", tokens, q, rule)]
        lines += [prefill("pass_kv", 300, 0.1, "pass_kv"), prefill("pass_q", 300, 0.2, "pass_q")]
        text = printed(tables, "net", lines)
        ends = {
            row.split(" | ")[0]: row.split(" | ")[-1]
            for row in text.splitlines()
            if row.startswith("| ")
        }
        self.assertEqual(ends["| 82"], "right |")
        self.assertEqual(ends["| 100"], "wrong |")
        self.assertEqual(ends["| 200"], "within 5 % |")
        self.assertEqual(ends["| 300"], "undecided |")
        self.assertIn("not always right: 2 of 4", text)

    def test_the_rule_of_shift_is_judged_where_base_differs(self) -> None:
        lines = []
        for batch, base, shift, rule in ((1, 4, 3, "shift"), (8, 4, 5, "shift"), (64, 4, 4.1, "base")):
            for sharding, value in (("base", base), ("shift", shift)):
                line: dict[str, Any] = {
                    "bench": "bench_decode",
                    "model": "m",
                    "ranks": 4,
                    "threads": 1,
                    "grid": f"CP 1 × SP 4 × TP 1, {sharding}",
                    "ring": "pass_q",
                    "rule": rule,
                    "context": 512,
                    "batch": batch,
                    "runs": 1,
                    "steps": 1,
                    "tokens_per_s": 1,
                    "exposed_comm_share": 0,
                    "layers": 1,
                    "sent_bytes_of_layers": 0,
                    "expected_bytes_of_layers": 0,
                    "step_seconds": {"median": value},
                }
                lines.append(line)
        text = printed(tables, "net", lines).split("Decode steps in base and in shift")[1]
        ends = [row.rsplit(" | ", 1)[1] for row in text.splitlines() if row.startswith("| CP")]
        self.assertEqual(ends, ["right |", "wrong |", "within 5 % |"])
        self.assertIn("not always right: 1 of 3", text)

    def test_experts_dealt_out_are_held_against_experts_cut(self) -> None:
        lines = []
        for ep, value in (("", 0.3), (" × EP 4", 0.1)):
            grid = f"CP 1 × SP 4 × TP 1{ep}, base"
            prompt = prefill("pass_kv", 512, value, "")
            lines.append({**prompt, "grid": grid})
            step = {"bench": "bench_decode", "batch": 8, "step_seconds": {"median": 1e-2 / value}}
            lines.append({**step, "grid": grid})
        text = printed(tables, "experts", lines)
        base = "| CP 1 × SP 4 × TP 1 |"
        self.assertIn(f"{base} prefill of 512 | 300.00 | 100.00 | EP 4 | 200 % |", text)
        self.assertIn(f"{base} step of 8 | 33.33 | 100.00 | EP 1 | 200 % |", text)

    def test_shares_are_of_one_rank_in_the_same_case(self) -> None:
        lines = []
        for ranks, tokens, rate in ((1, 2048, 100), (2, 2048, 90), (1, 8192, 50), (2, 8192, 48)):
            line = prefill("pass_kv", tokens, 1, "pass_kv")
            line.update(ranks=ranks, cached=0, tokens_per_s=rate, exposed_comm_share=0.01, layers=2)
            line.update(
                sent_bytes_of_layers=2 * tokens * 7, expected_bytes_of_layers=2 * tokens * 8
            )
            lines.append(line)
        text = printed(tables, "local", lines)
        self.assertIn("| 90 | 90 | 90 % | 1.0 | 7.0 | 8.0 |", text)
        self.assertIn("| 48 | 48 | 96 % | 1.0 | 7.0 | 8.0 |", text)

    def test_layouts_are_held_against_the_run_of_their_round(self) -> None:
        lines = []
        for run, layout in ((100, 90), (50, 46), (80, 60)):
            for reproducible, rate in (("run", run), ("layout", layout)):
                lines.append(
                    {
                        "bench": "bench_layout",
                        "mode": "CP 2",
                        "phase": "decode",
                        "reproducible": reproducible,
                        "tokens_per_s": rate,
                    }
                )
        text = printed(bench_layout.tables, lines)
        self.assertIn("| CP 2 | decode | 80.0 | 60.0 | 0.90 | 0.90, 0.92, 0.75 |", text)
