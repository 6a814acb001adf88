# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

from pecia_tools.bench.chunked import line, rows
from support import ScriptTest


class Chunked(ScriptTest):
    def report(self, ttft: float, failed: int = 0) -> dict[str, object]:
        path = self.folder / "report.json"
        report = {
            "build": {"commit": "c"},
            "machine": {"cpu": "m"},
            "counts": {"done": 2, "failed": failed, "open": 0, "prompt_tokens": 4000, "output_tokens": 40},
            "seconds": 2.0,
            "ttft_s": {"p50": ttft, "p99": 2 * ttft},
            "tbt_s": {"p50": 0.01, "p99": 0.05},
        }
        path.write_text(json.dumps(report), encoding="utf-8")
        return line(2000, "csa", 1, path)

    def test_figures_are_medians_of_rounds(self) -> None:
        found = rows([self.report(ttft) for ttft in (1.0, 5.0, 2.0)])
        self.assertEqual(found, [["2000", "csa", "2.00", "4.00", "10.0", "50.0", "2020"]])

    def test_a_run_with_failures_is_refused(self) -> None:
        self.assert_refused("1 requests failed", call=lambda: self.report(1.0, failed=1))
