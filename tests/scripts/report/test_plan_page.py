# SPDX-License-Identifier: Apache-2.0
import json
import re
import warnings
from typing import Any
from xml.etree import ElementTree

from pecia_tools.command import UserError
from pecia_tools.report import main as report
from pecia_tools.report.plan_page import best_by_ranks, front, phases_figure
from support import ScriptTest, quietly

GIB = 2**30


def foreseen(ranks: int, dp: int, cp: int, end_s: float) -> dict[str, Any]:
    parts = {"gemm_s": 0.5 * end_s, "attention_s": 0.2 * end_s, "exposed_comm_s": 0.05 * end_s, "other_s": 0}
    ring = cp > 1
    return {
        "ranks": ranks,
        "parallel": {
            "dp": dp, "cp": cp, "sp": 1, "tp": 1, "prefill": "ring" if ring else "auto", "ring": "auto",
            "decode": "pass_q" if ring else "auto", "mode": "ring/auto+pass_q" if ring else "single", "why": "",
        },
        "fits": True,
        "why_not": None,
        "memory_bytes_per_rank": {"program": 0, "weights": 2 * GIB, "kv": GIB, "work": GIB, "free": GIB},
        "requests": [{"prompt_tokens": 100, "cached_tokens": 0, "new_tokens": 5, "ttft_s": 3.0, "tbt_s": 0.1}],
        "end_s": end_s,
        "end_range_s": [0.9 * end_s, 1.1 * end_s],
        "gpu_hours": ranks * end_s / 3600,
        "phases": {"prefill": parts, "decode": {name: 0.1 * of for name, of in parts.items()}, "idle_s": 0.1},
        "limit": "compute",
    }  # fmt: skip


def plan() -> dict[str, Any]:
    return {
        "schema": "pecia.plan/1",
        "model": {"path": "models/<Made-up>"},
        "cluster": {"name": "h100-gtt", "file": ""},
        "batch": {"requests": 7, "prompt_tokens": 41000, "new_tokens": 35, "longest_prompt": 9000},
        "plans": [
            foreseen(4, 2, 2, 600),
            foreseen(2, 2, 1, 1000),
            foreseen(2, 1, 2, 1100),
            {"ranks": 1, "fits": False, "why_not": "the model needs much", "would_fit": "--ranks 2"},
        ],
        "knee": 4,
        "left_out": {"slower": 5, "too_large": 2},
        "layouts": 10,
    }


class PlanPageTest(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.file = self.folder / "plan.json"

    def write(self, document: object) -> None:
        self.file.write_text(json.dumps(document), encoding="utf-8")

    def test_shows_the_plans_and_what_would_fit(self) -> None:
        self.write(plan())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            code, out, err = quietly(report.main, self.file, "--png", self.folder / "png")
        self.assertEqual((code, out), (0, ""))
        self.assertIn("plan.html", err)
        for name in ("end", "phases"):
            self.assertTrue((self.folder / "png" / f"{name}.png").exists())
        page = (self.folder / "plan.html").read_text(encoding="utf-8")
        words = " ".join(re.sub(r"<[^>]+>", " ", page).split())
        for text in (
            "nothing of it was measured",
            "4 DP 2 × CP 2 ring/auto+pass_q 10 min 0 s 0.67 3.0 s 4.0 GiB compute",
            "1 the model needs much --ranks 2",
            "Of 10 legal layouts, 5 cannot end before the best of their number of ranks and 2 do not fit",
            "parallel: {dp: 2, cp: 2, sp: 1, tp: 1, prefill: ring, decode: pass_q}",
            "between 9 min 0 s and 11 min 0 s",
            "models/&lt;Made-up&gt;",
        ):
            self.assertIn(text, words)
        for drawing in re.findall(r"<svg.*?</svg>", page, re.S):
            ElementTree.fromstring(drawing.replace("&nbsp;", " "))

    def test_finds_the_best(self) -> None:
        plans = plan()["plans"][:3]
        self.assertEqual([each["end_s"] for each in best_by_ranks(plans).values()], [1000, 600])
        # 1100 s on two ranks end later than 1000 s and cost more.
        self.assertEqual([each["end_s"] for each in front(plans)], [600, 1000])

    def test_shows_the_time_in_which_memory_is_touched(self) -> None:
        def labels(document: dict[str, Any]) -> list[str]:
            return phases_figure(document).axes[0].get_legend_handles_labels()[1]

        document = plan()
        self.assertNotIn("first touch of memory", labels(document))  # as plans of earlier versions
        for each in document["plans"][:3]:
            each["phases"]["first_touch_s"] = 5
        self.assertIn("first touch of memory", labels(document))

    def test_refuses_what_has_no_times(self) -> None:
        self.write({"schema": "pecia.plan/1", "plans": []})
        with self.assertRaisesRegex(UserError, "write it with pecia plan --cluster"):
            report.main([str(self.file)])
        document = plan()
        document["plans"] = document["plans"][3:]
        self.write(document)
        with self.assertRaisesRegex(UserError, "no plan that fits .1 ranks: the model needs much"):
            report.main([str(self.file)])
