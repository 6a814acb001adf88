# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

import h5py

from pecia_tools.bench.elastic import LONG, LONGEST, SHORT, line, rate, tables, trace
from pecia_tools.command import UserError
from support import printed


def measured(kind: str, arrivals: str, mode: str, latency_s: list[float], seconds: float) -> dict:
    return {
        "round": 1,
        "kind": kind,
        "arrivals": arrivals,
        "mode": mode,
        "requests": len(latency_s),
        "prompt_tokens": 90,
        "output_tokens": 10,
        "seconds": seconds,
        "tbt_s": {"p99": 0.02},
        "ttft_s": [0.5 * one for one in latency_s],
        "latency_s": latency_s,
    }


class ElasticReport(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_traces_have_the_lengths_of_their_kind(self) -> None:
        for kind, least, most in (("short", *SHORT), ("long", LONG[0], LONGEST[1])):
            lengths = [one["input_length"] for one in trace(kind, 100000)]
            self.assertGreaterEqual(min(lengths), least)
            self.assertLessEqual(max(lengths), most)
            self.assertGreaterEqual(sum(lengths), 100000)
        mixed = list(trace("mixed", 100000))
        short = [one for one in mixed if one["input_length"] <= SHORT[1]]
        self.assertGreater(len(short), len(mixed) / 2)
        self.assertLess(sum(one["input_length"] for one in short), 50000)
        self.assertEqual(mixed, list(trace("mixed", 100000)), "the same each time")
        zipf = [one["input_length"] for one in trace("zipf", 100000)]
        self.assertGreaterEqual(min(zipf), 32)
        self.assertLess(sorted(zipf)[len(zipf) // 2], 100)
        self.assertGreater(max(zipf), 1000)

    def test_lines_are_of_runs_that_answered_all(self) -> None:
        counts = {"done": 2, "failed": 0, "open": 0, "prompt_tokens": 9, "output_tokens": 3}
        report: dict[str, Any] = {
            "build": {"commit": "c"},
            "machine": {"cpu": "x"},
            "counts": counts,
            "seconds": 2.0,
            "tbt_s": {"p50": 0.01, "p99": 0.02},
        }
        (self.folder / "report.json").write_text(json.dumps(report))
        with h5py.File(self.folder / "results.h5", "w") as results:
            results["ttft_s"], results["decode_s"] = [0.5, 1.0], [0.25, 0.0]
        found = line(3, "short", "replay", "DP", self.folder)
        self.assertEqual(found["latency_s"], [0.75, 1.0])
        self.assertEqual((found["round"], found["mode"], found["ttft_s"]), (3, "DP", [0.5, 1.0]))
        self.assertEqual(found["tbt_s"]["p99"], 0.02)
        counts["open"] = 1
        (self.folder / "report.json").write_text(json.dumps(report))
        with self.assertRaisesRegex(UserError, "1 are open"):
            line(3, "short", "replay", "DP", self.folder)

    def test_goodput_is_counted_against_idle_ranks(self) -> None:
        lines = [
            measured("short", "ignore", "alone-DP", [1.0, 2.0], 9),
            measured("short", "ignore", "alone-CP", [2.0, 1.0], 9),
            measured("short", "ignore", "DP", [1.0, 1.0], 4),
            measured("short", "ignore", "elastic", [1.0, 1.0], 5),
            measured("short", "replay", "DP", [25.0, 26.0], 9),
            measured("short", "replay", "elastic", [24.0, 25.0], 9),
        ]
        self.assertEqual(rate(lines, "short", 0.8), 0.8 * 2 / 4)
        text = printed(tables, lines)
        self.assertIn("short: elastic / best static 0.800 as a batch", text)
        self.assertIn("| DP | 25 | 0.500 | 12.75 | 12.75 | 12.99 | 20 |", text)
        self.assertIn("| elastic | 20 | 1.000 | 12.25 |", text)
