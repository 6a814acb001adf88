# SPDX-License-Identifier: Apache-2.0
import re
import warnings
from typing import Any, Optional
from xml.etree import ElementTree

import numpy as np
from matplotlib.figure import Figure

from pecia_tools.report import main as report
from pecia_tools.report.numbers import (
    count,
    duration,
    percent,
    ranges,
    size,
    tick_count,
    tick_seconds,
)
from pecia_tools.report.style import to_svg
from pecia_tools.report.tables import (
    declared,
    failures,
    places,
    predictions,
    sparse_against_dense,
    sparse_layers,
    sparse_levels,
    start,
    truncated,
    what_ran,
)
from pecia_tools.runs.folder import LENGTH, read_run
from run_folder import (
    FAILED,
    OPEN,
    PARTIAL,
    curve,
    full_trace,
    make_run,
    report_json,
    span,
    turn,
    write_trace,
    yielded,
)
from support import ScriptTest, quietly

HOSTILE = "$\\x$</title><script src=http://evil.example/x.js>alert('$1')</script>&\"\x01"


DRAWN: dict[str, str] = {}  # of each figure the first drawing, for pages whose words are looked at


def first_drawing(figure: Figure, name: str, label: str) -> str:
    return DRAWN.get(name) or DRAWN.setdefault(name, to_svg(figure, name, label))


class PageTest(ScriptTest):
    drawing = staticmethod(first_drawing)  # drawing takes most of a page's time

    def setUp(self) -> None:
        super().setUp()
        self.run_folder = self.folder / "run"
        self.play("pecia_tools.report.page", to_svg=self.drawing)

    def make(
        self, rows: Optional[list[dict[str, Any]]] = None, document: Optional[dict] = None
    ) -> None:
        make_run(self.run_folder, rows or [turn("a"), turn("b")], document)

    def page(self, *arguments: object) -> str:
        """What the command wrote, every warning being an error."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            code, out, err = quietly(report.main, self.run_folder, *arguments)
        self.assertEqual((code, out), (0, ""))
        self.assertIn("report.html", err)
        return (self.run_folder / "report.html").read_text(encoding="utf-8")

    def assert_says(self, page: str, *texts: str) -> None:
        """Without the page in the message, which is long."""
        self.assertEqual([text for text in texts if text not in page], [])

    def section(self, page: str, title: str) -> str:
        """Text and figure of one section."""
        return page.split(f"<h2>{title}</h2>")[1].split("</section>")[0]

    def assert_whole(self, page: str) -> ElementTree.Element:
        """Well-formed, ids used once, and nothing fetched from anywhere."""
        root = ElementTree.fromstring(page)
        names = [element.get("id") for element in root.iter() if element.get("id")]
        self.assertEqual(len(names), len(set(names)))
        for element in root.iter():
            self.assertNotIn(element.tag, ("script", "link", "iframe", "object"))
            for key, value in element.attrib.items():
                self.assertNotIn(key, ("src", "onload", "action"))
                if key.endswith("href"):
                    self.assertRegex(value, r"^(#|data:image/png;base64,)")
                for target in re.findall(r"url\(([^)]*)\)", value):
                    self.assertIn(target.lstrip("#"), names)
            if element.tag == "style":
                self.assertNotIn("url(", element.text)
                self.assertNotIn("@import", element.text)
        return root


class Page(PageTest):
    drawing = staticmethod(to_svg)

    def test_full_run_has_every_figure(self) -> None:
        self.make(document=report_json())
        full_trace(self.run_folder / "trace", ranks=2)
        page = self.page("--png", self.folder / "png")
        root = self.assert_whole(page)
        self.assertFalse("http" in page)
        self.assertEqual(len(root.findall(".//svg")), 6)
        names = {path.name: path.read_bytes()[:8] for path in (self.folder / "png").iterdir()}
        figures = ("throughput", "latency", "ranks", "timeline", "layer", "memory")
        self.assertEqual(sorted(names), sorted(f"{name}.png" for name in figures))
        self.assertEqual(set(names.values()), {b"\x89PNG\r\n\x1a\n"})
        self.assert_says(
            page, "Finished.", "2 of 2", "25 % of peak", "13 s", "500 ms", "p99 700 ms", "c0ffee"
        )

    def test_colours_follow_the_page(self) -> None:
        self.make(document=report_json())
        drawings = re.findall(r"<svg.*?</svg>", self.page(), re.S)
        self.assertEqual(len(drawings), 4)
        for drawing in drawings:
            self.assertTrue("fill: var(--muted)" in drawing)
            self.assertEqual(re.findall(r"(?:fill|stroke): #\w+", drawing), [])
            self.assertTrue("var(--sans)" in drawing and "DejaVu" not in drawing)

    def test_one_rank_and_one_request(self) -> None:
        self.make([turn("only", tokens=[7], decode=0)], report_json(ranks=1, links=[]))
        page = self.page()
        self.assert_whole(page)
        self.assert_says(self.section(page, "Bytes on the links"), "Ranks sent nothing")
        self.assertFalse("exposed communication</span>" in page)
        self.assert_says(page, "The folder has no trace/")

    def test_windows_say_what_they_saved(self) -> None:
        sent = {"sent_bytes": 3 << 20, "whole_ring_bytes": 2 << 30, "saved_share": 0.99854}
        self.make(document=report_json(windows=sent))
        page = self.page()
        self.assert_says(page, "99.9 %", "saved by windows", "sent 3.0 MiB, and 2.0 GiB round a")
        self.make(document=report_json(windows=None))
        self.assertFalse("saved by windows" in self.page())

    def test_many_ranks_and_requests_stay_small(self) -> None:
        rng = np.random.default_rng(0)
        rows = [
            turn(f"r{i}", prompt=int(p), ttft=float(p) * 1e-3, queue=float(i))
            for i, p in enumerate(rng.integers(10, 100_000, 4000))
        ]
        self.make(rows, report_json(ranks=128))
        full_trace(self.run_folder / "trace", ranks=128)
        page = self.page()
        self.assert_whole(page)
        self.assertLess(len(page), 1_000_000)
        self.assert_says(self.section(page, "Latency by prompt length"), "data:image/png")
        self.assert_says(self.section(page, "Ranks over time"), "data:image/png")

    def test_output_goes_where_it_is_asked_for(self) -> None:
        self.make()
        code, _, err = quietly(report.main, self.run_folder, "-o", self.folder / "new/run.html")
        self.assertEqual(code, 0)
        self.assertIn("run.html", err)
        self.assert_whole((self.folder / "new/run.html").read_text(encoding="utf-8"))
        self.assertFalse((self.run_folder / "report.html").exists())

    def test_hostile_names_are_only_text(self) -> None:
        document = report_json(errors=[HOSTILE])
        document["job"]["model"]["path"] = HOSTILE
        for rank in document["ranks"]:
            rank["host"] = HOSTILE
        self.make([turn("a"), turn(HOSTILE[:40], FAILED, error=HOSTILE[40:])], document)
        page = self.page()
        self.assert_whole(page)
        self.assert_says(self.section(page, "Failures"), "&lt;/title&gt;&lt;script src=")
        self.assert_says(page, "\ufffd")

    def test_peak_says_how_it_was_measured(self) -> None:
        rate = {"best": 2e9, "median": 1.9e9, "least": 1e9, "windows": 12, "window_s": 0.008}
        peak = {
            "flops": 2e9,
            "from": "start",
            "operands": "bf16",
            "instructions": "AVX-512 VDPBF16PS",
            "how": "a loop",
            "start": rate,
            "end": {**rate, "best": 1.5e9},
            "not_measured": {"AMX TDPBF16PS": "this CPU does not have it"},
            "bandwidth": {**rate, "best": 4e10},
            "bandwidth_how": "reading 16.0 MiB per thread",
        }
        self.make(document=report_json(peak=peak))
        self.assert_says(
            self.page(),
            "2.0 GFLOP/s of bf16; AVX-512 VDPBF16PS, a loop; 2.0 GFLOP/s (best of 12 windows of 8.0 ms,"
            " median 1.9 GFLOP/s, least 1.0 GFLOP/s) at the start, 1.5 GFLOP/s (best",
            "AMX TDPBF16PS not measured: this CPU does not have it",
            "40.0 GB/s (best",
            "reading 16.0 MiB per thread",
        )
        peak["from"] = "prefill"
        self.make(document=report_json(peak=peak))
        self.assert_says(self.page(), "reached in prefill, more than was measured beside the run")

    def test_core_hours_and_starts(self) -> None:
        one = {"began_unix_s": 0, "seconds": 3600, "done": 1, "failed": 0, "prompt_tokens": 100}
        one |= {"output_tokens": 5, "cores": 4, "gpus": 0}
        document = report_json(core_hours=4.0, starts=[one])
        self.make(document=document)
        page = self.page()
        self.assert_says(page, "loading included · 4 core-hours")
        self.assertNotIn("all starts", page)
        sums = {"starts": 2, "seconds": 7200, "done": 2, "failed": 0, "prompt_tokens": 200}
        sums |= {"output_tokens": 10, "core_hours": 8.0}
        self.make(document={**document, "starts": [one, one], "all_starts": sums})
        page = self.page()
        self.assert_says(page, "wall time, all starts", "of 2 starts · 8 core-hours")
        self.assert_says(self.section(page, "Starts"), "1970-01-01 00:00 UTC", "4 cores", "200")

    def test_times_to_the_first_token_of_shared_passes_are_explained(self) -> None:
        note = "33 of 64 first tokens came out of passes that read several prompts together."
        self.make(document=report_json(ttft_note=note))
        self.assert_says(self.section(self.page(), "Latency by prompt length"), note)

    def test_trace_without_spans(self) -> None:
        self.make(document=report_json())
        write_trace(self.run_folder / "trace", 0, [])
        self.assert_says(self.section(self.page(), "Ranks over time"), "The trace has no spans")


class WhatIsMissing(PageTest):
    def test_killed_run(self) -> None:
        rows = [turn("a"), turn("b", PARTIAL), turn("c", OPEN)]
        self.make(rows)
        (self.run_folder / "progress.json").write_text('{"elapsed_s": 61.0}')
        page = self.page()
        root = self.assert_whole(page)
        self.assert_says(page, "Not finished: 2 turns of 3 to do. report.json is not there")
        self.assert_says(page, "1 of 3", "1 min 1 s", "2.0 s", "200</b>")
        self.assertEqual(len(root.findall(".//svg")), 2)
        self.assert_says(self.section(page, "Ranks, links, memory"), "written when a run ends")
        self.assert_says(self.section(page, "Ranks over time"), "written when a run ends")

    def test_run_that_has_only_begun(self) -> None:
        self.make([turn("a", OPEN)])
        page = self.page()
        self.assertEqual(self.assert_whole(page).findall(".//svg"), [])
        self.assert_says(page, "No turn has been answered yet")

    def test_report_alone(self) -> None:
        self.make(document=report_json(counts={**report_json()["counts"], "failed": 1}))
        (self.run_folder / "results.h5").unlink()
        page = self.page()
        self.assert_whole(page)
        self.assert_says(page, "results.h5 is not in this folder")
        self.assert_says(
            self.section(page, "Failures"), "1 turn failed; the reasons are in results.h5"
        )

    def test_continued_run(self) -> None:
        self.make([turn("a"), turn("b"), turn("c")], report_json())
        self.assert_says(self.page(), "finished 2 of the 3 turns")
        self.make([turn("a"), turn("b"), turn("c", OPEN)], report_json())
        self.assert_says(self.page(), "report.json is of an earlier start")

    def test_summary_says_what_would_show_the_steps(self) -> None:
        self.make(document=report_json())
        write_trace(self.run_folder / "trace", 0, [span("prefill", "phase", 0, 1)], dropped=7)
        page = self.page()
        self.assert_says(self.section(page, "One layer, step by step"), "report: {trace: full}")
        timeline = self.section(page, "Ranks over time")
        self.assert_says(timeline, "report: {trace: full}", "7 spans and notes", "1 of 2 ranks",
                         "before the first pass: measure 250 ms, measure peak 125 ms")

    def test_trace_that_was_off(self) -> None:
        document = report_json()
        document["job"]["report"]["trace"] = "off"
        self.make(document=document)
        self.assert_says(self.section(self.page(), "Ranks over time"), "report: {trace: off}")


class Tables(PageTest):
    def test_failures_are_cut_and_counted(self) -> None:
        self.make([turn(f"r{i}", FAILED, error=f"row {i}: too long") for i in range(60)])
        table = failures(read_run(self.run_folder))
        self.assertEqual(len(table.rows), 50)
        self.assertEqual(table.rows[49], ("r49", "0", "row 49: too long"))
        self.assertIn("10 more", table.after)

    def test_what_was_cut_is_counted_and_listed(self) -> None:
        cut = {"reason": LENGTH, "truncated": 300}
        rows = [
            turn("a", prompt=100, **cut),
            turn("b", prompt=100, truncated=900, reason=LENGTH, slots=5),
            turn("c", reason=LENGTH, tokens=[], ttft=0),  # was only read
            turn("d", PARTIAL, truncated=7),
            turn("e", truncated=0, reason=1),
        ]
        self.make(rows)
        run = read_run(self.run_folder)
        self.assertEqual(truncated(run).rows, [
            ("b", "0", "1,000", "900", "90 %"),
            ("a", "0", "400", "300", "75 %"),
        ])  # fmt: skip
        page = self.page()
        self.assert_whole(page)
        self.assert_says(page, "prompts truncated", "1.2k tokens left out")
        section = self.section(page, "Cut to fit")
        self.assert_says(section, "2 prompts longer than", "left out 1,200 tokens")
        self.assert_says(section, "1 answer cut at max_new_tokens, 1 answer cut at the model")

    def test_what_was_cut_by_the_report_alone(self) -> None:
        counts = {**report_json()["counts"], "truncated_turns": 1, "truncated_tokens": 2990}
        counts |= {"cut_by_length": 3, "cut_by_model_length": 0}
        self.make(document=report_json(counts=counts))
        (self.run_folder / "results.h5").unlink()
        page = self.page()
        self.assert_says(page, "prompt truncated", "left out 2,990 tokens. 3 answers cut at max")

    def test_nothing_cut_says_nothing(self) -> None:
        self.make(document=report_json())
        self.assertFalse("Cut to fit" in self.page())

    def test_truncated_prompts_beyond_the_first_are_counted(self) -> None:
        self.make([turn(f"r{i}", truncated=i + 1) for i in range(60)])
        table = truncated(read_run(self.run_folder))
        self.assertEqual((len(table.rows), table.rows[0][0]), (50, "r59"))
        self.assertIn("10 more", table.after)

    def test_start_is_shown_by_its_parts(self) -> None:
        self.make(document=report_json())
        table = start(read_run(self.run_folder).report)
        self.assertEqual(
            table.rows,
            [
                ("mpi", "250 ms"),
                ("load weights", "500 ms"),
                ("measure", "250 ms"),
                ("measure peak", "125 ms"),
                ("all", "1.1 s"),
            ],
        )
        self.assert_says(self.section(self.page(), "Start"), "load weights", "500 ms")

    def test_what_ran_on_gpus(self) -> None:
        document = report_json(model={"weights": "fp8"})
        document["modes"]["attention_library"] = "cuDNN 9.19.0"
        document["modes"]["expert_library"] = "CUTLASS 4.2.0"
        document["machine"]["gpu"] = "Voodoo 2"
        self.make(document=document)
        rows = dict(what_ran(read_run(self.run_folder)))
        self.assertEqual(rows["Attention of prompts"], "cuDNN 9.19.0")
        self.assertEqual(rows["Experts of prompts"], "CUTLASS 4.2.0")
        self.assertEqual(rows["GPU"], "Voodoo 2, one per rank")
        self.assertEqual(rows["Weights"], "fp8, 1.0 MiB per rank")

    def test_what_memory_on_demand_did(self) -> None:
        demand = {"most_at_once": 9, "parked": 2, "parked_tokens": 300, "forgotten": 0, "reread_tokens": 0}
        self.make(document=report_json(kv={"demand": demand}))
        row = "Memory on demand"
        self.assertEqual(
            dict(what_ran(read_run(self.run_folder)))[row], "up to 9 sequences at once; parked 2 times, 300 tokens"
        )
        demand.update(parked=0, forgotten=4, reread_tokens=900)
        self.make(document=report_json(kv={"demand": demand}))
        self.assert_says(dict(what_ran(read_run(self.run_folder)))[row], "forgotten 4 times, 900 tokens read again")
        self.make(document=report_json(kv={"demand": None}))
        self.assertNotIn(row, dict(what_ran(read_run(self.run_folder))))

    def test_links_against_the_passes(self) -> None:
        self.make(document=report_json())
        table = declared(read_run(self.run_folder).report)
        self.assertEqual(table.rows, [("ring", "1,000", "800", "200")])

    def test_teams_over_time(self) -> None:
        def team(begin: float, instances: list[int], workers: int, phase: str) -> dict[str, Any]:
            return {
                "replica": 0,
                "begin_s": begin,
                "end_s": begin + 1,
                "instances": instances,
                "workers": workers,
                "phase": phase,
                "sequence": int(begin),
            }

        degree = {"prefill_passes": 3, "prefill_tokens": 900, "decode_passes": 4, "decode_tokens": 8}
        elastic = {
            "degrees": [
                {"instances": 1, **dict.fromkeys(degree, 0), "masters": 0},
                {"instances": 2, **degree, "masters": 6},
            ],
            "scale_downs": 1,
            "scale_ups": 2,
            "shrinks": 3,
            "moved_tokens": 40,
            "timeline": {
                "least_s": 0.004,
                "spans": [team(0, [1, 0], 2, "prefill"), team(1, [0, 1], 1, "decode")],
            },
        }
        self.make(document=report_json(elastic=elastic))
        section = self.section(self.page(), "Teams over time")
        self.assert_says(section, "<svg", "holds keys", "1 prompt had", "2 teams took in", "left an instance 3 times")
        self.assert_says(section, "40 tokens moved")
        self.assert_says(section, "less than 4.0 ms", "<td>1.5</td>")
        self.assertNotIn("<td>1</td>", section.partition("<tbody>")[2].partition("</tr>")[0])
        elastic["timeline"] = {"least_s": 0, "spans": []}
        self.make(document=report_json(elastic=elastic))
        self.assert_says(self.section(self.page(), "Teams over time"), "No team made a pass.")
        self.make(document=report_json())
        self.assertNotIn("Teams over time", self.page())

    def test_memory_on_demand_over_time(self) -> None:
        demand = {"most_at_once": 2, "parked": 1, "parked_tokens": 9}
        self.make(document=report_json(kv={"demand": demand}))
        self.assertNotIn("Memory on demand</h2>", self.page(), "the trace has none")
        folder = self.run_folder / "trace"
        events = [curve(0.5, 0, 1, 1, 0), yielded("parked", 0, 9), curve(1.5, 0, 2, 0, 0)]
        write_trace(folder, 0, [span("decode", "phase", 0, 2), *events])
        section = self.section(self.page(), "Memory on demand")
        self.assert_says(section, "<svg", "Keys were parked 1 time", "of all replicas")

    def test_sparse_attention_beside_dense(self) -> None:
        def level(number: int, ranks: int, kept: float, sent: int, pairs: int) -> dict[str, Any]:
            return {
                "level": number,
                "ranks_per_segment": ranks,
                "kept_share": kept,
                "attention_pairs": pairs,
                "token_bytes": 3 * sent,
                "output_bytes": sent,
            }

        sparse = {
            "geometry": "disjoint",
            "drop": 0.4,
            "levels": [
                level(1, 1, 1.0, 0, 300),
                level(2, 2, 0.61, 2**20, 120),
                level(3, 8, 0.31, 2**18, 80),
            ],
            "layers": [
                {"first": 0, "last": 0, "kept_share": [1.0, 1.0, 1.0]},
                {"first": 1, "last": 28, "kept_share": [1.0, 0.6, 0.3]},
                {"first": 29, "last": 29, "kept_share": None},
            ],
            "passes": 1,
            "rows": 4096,
            "attention_pairs": 500,
            "dense_attention_pairs": 2000,
            "importance_pairs": 7_000_000,
            "sent_bytes": 6 * 2**20,
            "dense_sent_bytes": 24 * 2**20,
            "importance_bytes": 2**20,
            "sent_bytes_by_link": {"server": 5 * 2**20, "rack": 2**20, "system": 0},
            "dense_sent_bytes_by_link": {"server": 8 * 2**20, "rack": 16 * 2**20, "system": 0},
        }
        self.make(document=report_json(sparse=sparse))
        page = self.page("--png", self.folder / "png")
        self.assert_whole(page)
        self.assertTrue((self.folder / "png/sparse.png").exists())
        section = self.section(page, "Sparse attention")
        self.assert_says(section, "<svg", "1 pass with 4,096 rows", "geometry disjoint, drop 0.4")
        self.assert_says(section, "1.0 MiB were sent", "7.0M products")
        self.assert_says(section, "Dense is Ulysses over the same ranks, and a pair")
        self.assertEqual(sparse_against_dense(sparse).rows, [
            ("bytes sent", "6.0 MiB", "24.0 MiB", "25 %"),
            ("… inside a server", "5.0 MiB", "8.0 MiB", "62 %"),
            ("… between servers of a rack", "1.0 MiB", "16.0 MiB", "6.2 %"),
            ("pairs of query and key", "500", "2.0k", "25 %"),
        ])  # fmt: skip
        self.assertEqual(
            sparse_levels(sparse).rows[1], ("2", "2", "61 %", "3.0 MiB", "1.0 MiB", "24 %")
        )
        self.assertEqual(sparse_layers(sparse).rows, [
            ("0", "100 %", "100 %", "100 %"),
            ("1–28", "100 %", "60 %", "30 %"),
            ("29", "–", "–", "–"),
        ])  # fmt: skip

        nothing = {"sent_bytes": 0, "dense_sent_bytes": 0, "attention_pairs": 0}
        nothing |= {"levels": [level(1, 1, 0, 0, 0) | {"kept_share": None}], "passes": 0}
        self.make(document=report_json(sparse={**sparse, **nothing}))
        section = self.section(self.page(), "Sparse attention")
        self.assert_says(section, "No pass was attended by levels")
        self.make(document=report_json(sparse={**sparse, **nothing, "passes": 1}))
        section = self.section(self.page(), "Sparse attention")
        self.assert_says(section, "<svg", "<td>–</td>", "share heads, so that dense attention sends")
        for absent in ({"sparse": None}, {}):
            self.make(document=report_json(**absent))
            self.assertNotIn("Sparse attention", self.page())

    def test_links_of_other_groups_have_no_formula(self) -> None:
        link = {"pattern": "tp", "level": "rack", "messages": 1, "bytes": 5}
        self.make(document=report_json(links=[link]))
        self.assertEqual(declared(read_run(self.run_folder).report).rows, [])

    def test_predictions_stand_beside_what_was_measured(self) -> None:
        predicted = {"seconds": 10.0, "phases": {"decode": {"seconds": 3}}, "fits": True, "new": 1}
        self.make(document=report_json(predicted=predicted))
        self.assertEqual(
            predictions(read_run(self.run_folder).report).rows,
            [
                ("seconds", "10", "12.5", "-20 %"),
                ("phases.decode.seconds", "3", "2", "50 %"),
                ("new", "1", "–", "–"),
            ],
        )
        self.assert_says(self.page(), "Predicted and measured")
        self.make(document=report_json())
        self.assertFalse("Predicted and measured" in self.page())

    def test_ranks_by_rack_and_host(self) -> None:
        self.make(document=report_json(ranks=5))
        table = places(read_run(self.run_folder).report)
        self.assertEqual(table.rows, [("rack0", "n0: 0–1 · n1: 2–3"), ("rack1", "n2: 4")])


class Numbers(PageTest):
    def test_numbers_as_people_read_them(self) -> None:
        for text, expected in (
            (duration(4.2e-4), "420 µs"),
            (duration(0.0042), "4.2 ms"),
            (duration(0.42), "420 ms"),
            (duration(0.9996), "1.0 s"),
            (duration(702), "11 min 42 s"),
            (duration(11220), "3 h 7 min"),
            (duration(187200), "2 d 4 h"),
            (duration(None), "–"),
            (count(7), "7"),
            (count(41234), "41.2k"),
            (count(999_600), "1.0M"),
            (size(512), "512 B"),
            (size(15 * 2**30), "15.0 GiB"),
            (percent(0.031), "3.1 %"),
            (percent(0.58), "58 %"),
            (percent(float("nan")), "–"),
            (ranges([3, 0, 1, 2, 8]), "0–3, 8"),
            (tick_count(10_000), "10k"),
            (tick_seconds(0.005), "5 ms"),
            (tick_seconds(200), "200 s"),
        ):
            self.assertEqual(text, expected)
