# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

from pecia_tools.bench.trace import line, tables
from pecia_tools.command import UserError
from support import printed


def report(failed: int = 0) -> dict[str, Any]:
    percentiles = {"p50": 0.1, "p90": 0.2, "p99": 0.3}
    return {
        "build": {"commit": "c"},
        "machine": {"cpu": "x"},
        "counts": {
            "done": 3,
            "failed": failed,
            "open": 0,
            "prompt_tokens": 90,
            "output_tokens": 30,
        },
        "seconds": 2.0,
        "ttft_s": percentiles,
        "tbt_s": percentiles,
        "exposed_communication": 0.0,
    }


class TraceReport(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "report.json"

    def test_runs_with_failures_are_no_measurement(self) -> None:
        self.path.write_text(json.dumps(report(failed=1)))
        with self.assertRaisesRegex(UserError, "1 requests failed"):
            line("SP", "replay", self.path)

    def test_tables_have_medians_by_mode(self) -> None:
        self.path.write_text(json.dumps(report()))
        lines = []
        for arrivals, factors in (("replay", (1, 2, 10)), ("ignore", (1, 2, 4))):
            for factor in factors:
                one = line("SP", arrivals, self.path)
                one["ttft_s"] = {key: value * factor for key, value in one["ttft_s"].items()}
                one["seconds"] *= factor
                lines.append(one)
        text = printed(tables, lines)
        self.assertIn("| SP | 200 | 400 | 600 | 100 | 200 | 300 |", text)
        self.assertIn("| SP | 30 | 60, 30, 15 |", text)
