# SPDX-License-Identifier: Apache-2.0
import json
import re
import warnings
from typing import Any
from xml.etree import ElementTree

from pecia_tools.command import UserError
from pecia_tools.report import main as report
from pecia_tools.report.papers_page import figure_of, lines_of
from support import ScriptTest, quietly


def row(x: float, published: float | None, ours: float | None, **more: Any) -> dict[str, Any]:
    error = None if published is None or ours is None else ours / published - 1
    return {
        "what": "TTFT", "setting": f"{x:g} <tokens>", "unit": "ms", "published": published, "published_to": None,
        "ours": ours, "error": error, "allowed": 0.1 if error is not None else None, "how": "simulated",
        "fitted": False, "plot": {"name": "times", "line": "ring", "x": x}, **more,
    }  # fmt: skip


def papers() -> dict[str, Any]:
    rows = [
        row(200, 20, 25),
        row(100, 10, 10.5, fitted=True),
        row(300, None, 31, note="published figure not at hand"),
        row(400, 0.2, 0.3, published_to=0.4, unit="", error=0, allowed=None),
        row(500, 50, None, note="needs weights", command="pecia tune"),
        row(600, 1, 2, how="measured", note="two cores", command="bench x", measured_on="a Zen, 12ab", page="zen.md"),
    ]
    plots = [{"name": "times", "x_axis": "tokens", "y_axis": "ms", "log_x": True, "log_y": False}]
    paper = {
        "name": "CP", "title": "A Ring", "machine": "32 GPUs", "rows": rows, "plots": plots,
        "constants": [{"name": "share", "value": 0.5, "unit": "", "fitted_to": "a row", "largest_share": None}],
        "claims": [{"text": "rings are round", "holds": False}],
    }  # fmt: skip
    return {"schema": "pecia.papers/1", "papers": [paper]}


class PapersPageTest(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.file = self.folder / "papers.json"

    def write(self, document: object) -> None:
        self.file.write_text(json.dumps(document), encoding="utf-8")

    def test_shows_figures_constants_and_claims(self) -> None:
        self.write(papers())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            code, out, err = quietly(report.main, self.file, "--png", self.folder / "png")
        self.assertEqual((code, out), (0, ""))
        self.assertIn("papers.html", err)
        self.assertTrue((self.folder / "png" / "cp-times.png").exists())
        page = (self.folder / "papers.html").read_text(encoding="utf-8")
        words = " ".join(re.sub(r"<[^>]+>", " ", page).split())
        for text in (
            "TTFT 200 &lt;tokens&gt; 20 ms 25 ms +25.0% 10% simulated",
            "TTFT * 100",
            "not at hand 31 ms – – simulated published figure not at hand",
            "0.2 to 0.4 0.3 +0.0% – simulated",
            "needs weights; pecia tune",
            "measured two cores; bench x; a Zen, 12ab; zen.md",
            "does not hold rings are round",
            "share 0.5 a row –",
            "0 of 2 within 10 %",
            "100% the largest error",
        ):
            self.assertIn(text, words)
        for drawing in re.findall(r"<svg.*?</svg>", page, re.S):
            ElementTree.fromstring(drawing.replace("&nbsp;", " "))

    def test_lines_go_from_left_to_right(self) -> None:
        paper = papers()["papers"][0]
        places = [each["plot"]["x"] for each in lines_of(paper, "times")["ring"]]
        self.assertEqual(places, [100, 200, 300, 400, 500, 600])
        (axis,) = figure_of(paper, paper["plots"][0]).axes
        ours, published = axis.lines
        self.assertEqual(list(ours.get_xdata()), [100, 200, 300, 400, 600])
        self.assertEqual(list(published.get_xdata()), [100, 200, 500, 600])
        self.assertEqual(len(axis.collections), 1, "a range is a bar")

    def test_logarithmic_axes_have_plain_numbers(self) -> None:
        paper = papers()["papers"][0]
        (axis,) = figure_of(paper, {**paper["plots"][0], "log_y": True}).axes
        self.assertEqual(axis.yaxis.get_major_formatter()(20, 0), "20")

    def test_refuses_a_file_without_papers(self) -> None:
        self.write({"schema": "pecia.papers/1", "papers": []})
        with self.assertRaisesRegex(UserError, "pecia plan --papers --json"):
            report.main([str(self.file)])
