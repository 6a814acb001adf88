# SPDX-License-Identifier: Apache-2.0
import json
import re
import warnings
from typing import Any
from xml.etree import ElementTree

from pecia_tools.command import UserError
from pecia_tools.report import main as report
from pecia_tools.report.tuned_page import points
from support import ScriptTest, quietly


def sample(prompt: str, drop: float, levels: int, loss: float, retrieval: float, deal: str = "even") -> dict[str, Any]:
    return {
        "prompt": prompt, "tokens": 800, "drop": drop, "deal": deal, "levels": levels, "micro": 2,
        "nll": 3 + loss,
        "loss": loss, "loss_error": 0.003, "same_answers": 0.75, "retrieval": retrieval, "ttft_s": 2 - drop,
    }  # fmt: skip


def tuned() -> dict[str, Any]:
    found = {
        "drop": 0.24, "deal": "mass", "levels": 3, "micro": [4, 2], "loss": 0.0187, "ttft_s": 1.6,
        "retrieval": 0.91,
    }  # fmt: skip
    error = {"samples": 8, "mean_absolute_error": 0.0123, "noise": 0.0045, "accuracy": 0.66}
    oracle = {"best": {**found, "deal": "even", "micro": 1}, "models": found, "holds": True, "gap": 0.034}
    of_bucket = {"shortest": 700, "longest": 800, "dense_ttft_s": 2.0}
    return {
        "schema": "pecia.tuned/4",
        "version": "1.2.3",
        "model": {"path": "models/<Made-up>", "config_sha256": "ab"},
        "grid": {"cp": 4, "tp": 1},
        "geometry": "disjoint",
        "chosen": [
            {**of_bucket, "goal": {"loss": 0.02}, "met": True, "found": found, "oracle": oracle},
            {**of_bucket, "goal": {"ttft_s": 1.5}, "met": False, "found": found, "oracle": None},
        ],
        "held_out_goals": [
            {"goal": {"loss": 0.02}, "prompts": 2, "measured": 0.0167, "kept": True},
            {"goal": {"ttft_share_of_dense": 0.8}, "prompts": 2, "measured": 0.82, "kept": False},
            {"goal": {"ttft_share_of_dense": 0.7}, "prompts": 0, "measured": 0, "kept": False},
        ],
        "loss_model": {"held_out": error},
        "time_model": {"held_out": {**error, "mean_absolute_error": 0.25, "accuracy": 0.95}},
        "dense": [
            {"prompt": name, "tokens": tokens, "nll": 3, "retrieval": 0.875, "ttft_s": 2}
            for name, tokens in (("a", 700), ("b", 800))
        ],
        "samples": [
            sample(prompt, drop, levels, loss + 0.1 * drop, 0.5 - drop / 2)
            for prompt, loss in (("a", 0.01), ("b", 0.03))
            for levels in (2, 3)
            for drop in (0.1, 0.4)
        ] + [sample("a", 0.4, 2, 0.02, 0.4, "mass"), sample("b", 0.4, 2, 0.02, 0.4, "mass")],
    }  # fmt: skip


class TunedPageTest(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.file = self.folder / "tuned.json"

    def write(self, document: object) -> None:
        self.file.write_text(json.dumps(document), encoding="utf-8")

    def test_shows_what_was_measured_and_chosen(self) -> None:
        self.write(tuned())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            code, out, err = quietly(report.main, self.file, "--png", self.folder / "png")
        self.assertEqual((code, out), (0, ""))
        self.assertIn("tuned.html", err)
        self.assertTrue((self.folder / "png" / "curve.png").exists())
        page = (self.folder / "tuned.html").read_text(encoding="utf-8")
        words = " ".join(re.sub(r"<[^>]+>", " ", page).split())
        for text in (
            "Loss, retrieval and time",
            "700 to 800 tokens",
            "0.0300 ± 0.0021 75 % 45 % 1.9 s",
            "dense 88 % 2.0 s",
            "off by 0.0123 nats, of which the samples' own errors make 0.0045 (accuracy 66 %)",
            "loss 0.02 0.0167 yes",
            "80 % of dense TTFT 82 % no",
            "no setting meets it",
            "24 % by mass at 3 levels in 4, 2 parts 0.0187 91 % 1.6 s 24 % at 3 levels in 1 part +3.4 %",
            "TTFT 1.5 s (not met; nearest)",
            "models/&lt;Made-up&gt;",
        ):
            self.assertIn(text, words.replace("&#39;", "'"))
        self.assertNotIn("when the run has ended", page)
        drawing = re.search(r"<svg.*?</svg>", page, re.S)
        assert drawing
        ElementTree.fromstring(drawing[0].replace("&nbsp;", " "))

    def test_takes_means_over_prompts(self) -> None:
        found = points(tuned())
        self.assertEqual(
            [(each.levels, each.deal, each.drop) for each in found],
            [(2, "even", 0.1), (2, "even", 0.4), (2, "mass", 0.4), (3, "even", 0.1), (3, "even", 0.4)],
        )
        self.assertAlmostEqual(found[1].loss, 0.06)
        self.assertAlmostEqual(found[1].loss_error, 0.003 / 2**0.5)

    def test_refuses_other_files(self) -> None:
        for document in ({"schema": "pecia.tuned/1"}, [], {}):
            self.write(document)
            with self.assertRaisesRegex(UserError, r"tuned\.json has not the schema pecia\.tuned/4"):
                report.main([str(self.file)])
        self.file.write_text("{", encoding="utf-8")
        with self.assertRaisesRegex(UserError, "a file that pecia tune or pecia plan --json wrote"):
            report.main([str(self.file)])
