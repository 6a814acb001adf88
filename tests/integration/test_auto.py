# SPDX-License-Identifier: Apache-2.0
"""Layouts that a run chooses by foreseen times, and clusters that are fitted to runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import unittest
from pathlib import Path
from typing import Any, ClassVar

from harness import (
    ALL_DONE,
    DONE,
    DRAINED,
    MPIEXEC,
    PROGRAM,
    REFUSED,
    RunTest,
    random_requests,
    wait_for,
)

OPEN = {"dp": "auto", "cp": "auto", "sp": "auto", "tp": "auto"}
GENERATION: dict[str, Any] = {"max_new_tokens": 16, "ignore_eos": True}
# What the rest of a stopped batch is asked for, where its answers say nothing.
SOON_DONE = ("--set=generation.max_new_tokens=8", "--set=batch.max_sequences=16")


class AutoTest(RunTest):
    measured: ClassVar[dict[str, bytes]] = {}  # descriptions by name; measuring takes many seconds

    def setUp(self) -> None:
        super().setUp()
        self.cache = self.folder / "cache"  # where what was measured is kept; other tests have none

    def measured_before(self) -> None:
        """As if an earlier run had measured these ranks."""
        if not self.measured:
            job = self.write_job(
                random_requests(2, 5, 9, seed=1),
                "measured",
                generation={"max_new_tokens": 2},
                parallel=OPEN,
            )
            self.run_here(job, 2)
            self.keep_measured()
            return
        for name, content in self.measured.items():
            path = self.cache / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def keep_measured(self) -> None:
        for path in self.clusters():
            self.measured[str(path.relative_to(self.cache))] = path.read_bytes()

    def run_here(self, job: Path, ranks: int, *options: str) -> str:
        environment = {"XDG_CACHE_HOME": str(self.cache)}
        return self.end(self.start(job, ranks, *options, environment=environment), ALL_DONE)

    def clusters(self) -> dict[Path, float]:
        """The kept descriptions, and when they were written."""
        return {file: file.stat().st_mtime for file in self.cache.rglob("cluster-*.yaml")}

    def plan(self, *options: object, expect: int = 0) -> str:
        command = [str(word) for word in (PROGRAM, "plan", *options)]
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.cache)}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment
        )
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stdout if expect == 0 else done.stderr

    def test_a_batch_measures_once_and_says_what_it_expected(self) -> None:
        """By its name the first one; the others find what it has measured."""
        requests = random_requests(12, 20, 300, seed=91)
        job = self.write_job(requests, generation=GENERATION, parallel=OPEN)
        alone = self.write_job(requests, "alone", generation=GENERATION)
        self.run_job(alone, 1)
        words = self.run_here(job, 2)
        self.assertRegex(words, r"auto: .* foreseen for this batch.*; \d+ layouts")
        kept = self.clusters()
        self.assertEqual(len(kept), 1)
        self.keep_measured()
        report = self.report(job)
        expected = report["modes"]["expected"]
        chosen = expected["chosen"]
        self.assertEqual({key: chosen[key] for key in report["grid"]}, report["grid"])
        self.assertEqual(chosen["mode"], report["modes"]["mode"])
        for other in expected["alternatives"]:
            self.assertGreaterEqual(other["expected_s"], chosen["expected_s"])
        self.assertEqual(report["job"]["parallel"]["dp"], "auto")  # as its author has it
        self.assert_same_answers(self.results(job), self.results(alone), range(12))

        self.run_here(job, 2, "--fresh")
        self.assertEqual(self.clusters(), kept)
        self.assertEqual(self.report(job)["modes"]["expected"], expected)

        # Modes alone are chosen where a description is kept, and by rule where there is none.
        modes = self.write_job(requests, "modes", generation=GENERATION, parallel={"cp": "auto"})
        self.run_here(modes, 2)
        self.assertEqual(self.report(modes)["modes"]["expected"]["by_rule"]["cp"], 2)
        self.run_job(modes, 2, "--fresh")
        self.assertIsNone(self.report(modes)["modes"]["expected"])

    def test_stages_are_compared_where_they_are_open(self) -> None:
        requests = random_requests(6, 20, 100, seed=97)
        self.measured_before()
        job = self.write_job(requests, generation=GENERATION, parallel={**OPEN, "pp": "auto"})
        self.run_here(job, 2)
        expected = self.report(job)["modes"]["expected"]
        self.assertEqual(expected["chosen"]["pp"], self.report(job)["grid"].get("pp", 1))
        compared = [expected["chosen"], *expected["alternatives"]]
        self.assertIn(2, [layout["pp"] for layout in compared])

        # It is the only degree that is open, so it takes all ranks.
        ones = dict.fromkeys(OPEN, 1)
        only = self.write_job(
            requests, "only", generation=GENERATION, parallel={**ones, "pp": "auto"}
        )
        self.run_here(only, 2)
        self.assertEqual(self.report(only)["grid"]["pp"], 2)
        self.assert_same_answers(self.results(job), self.results(only), range(6))

    def test_counts_what_requests_that_begin_alike_share(self) -> None:
        book = random_requests(1, 1600, 1600, seed=95)[0].turns[0]
        requests = random_requests(16, 10, 20, seed=96)
        for request in requests:
            request.turns[0] = book + request.turns[0]
        self.measured_before()
        expected = []
        for shares in (True, False):
            job = self.write_job(
                requests,
                f"shares-{shares}",
                generation={**GENERATION, "max_new_tokens": 2},
                parallel={**OPEN, "tp": 1, "sp": 1},
                batch={"prefix_sharing": shares},
                model={"rope_scaling": {"type": "linear", "factor": 4}},
            )
            self.run_here(job, 2)
            report = self.report(job)
            self.assertEqual("none" in report["prefix_sharing"], not shares)
            expected.append(report["modes"]["expected"]["by_rule"]["expected_s"])
        self.assertLess(expected[0], 0.5 * expected[1])

    def drained(self) -> tuple[Path, dict[str, int]]:
        """A job that was stopped after its first requests, and its grid. Replicas write rows to the
        results some tenths of a second after they are done, and the batch takes some seconds."""
        requests = random_requests(60, 200, 400, seed=92)
        generation = {**GENERATION, "max_new_tokens": 1000}
        self.measured_before()
        job = self.write_job(
            requests, generation=generation, parallel=OPEN, batch={"max_sequences": 1}
        )
        launch = self.start(
            job, 2, environment={"XDG_CACHE_HOME": str(self.cache)}, together=True
        )
        wait_for("a request that is done", lambda: self.done(job) > 0)
        launch.ranks()
        launch.signal_ranks(signal.SIGTERM)
        self.end(launch, DRAINED)
        grid = self.report(job)["grid"]
        return job, grid

    def test_a_continued_run_keeps_the_layout_in_which_it_began(self) -> None:
        job, grid = self.drained()
        for file in self.clusters():
            file.unlink()
        words = self.run_here(job, 2, *SOON_DONE)
        self.assertIn("auto: the layout in which this run began", words)
        self.assertEqual(self.report(job)["grid"], grid)
        self.assertEqual(self.clusters(), {})
        self.assertEqual(len(self.results(job).rows(DONE)), 60)

    def test_a_continued_run_has_the_grid_that_its_author_gives_now(self) -> None:
        job, began = self.drained()
        given = {"dp": 2, "cp": 1} if began["dp"] == 1 else {"dp": 1, "cp": 2}
        given |= {"sp": 1, "tp": 1}
        layout = (f"--set=parallel.{key}={value}" for key, value in given.items())
        self.run_here(job, 2, *layout, *SOON_DONE)
        self.assertEqual(self.report(job)["grid"], given)

    def test_keys_or_queries_go_by_what_topology_measured(self) -> None:
        requests = random_requests(4, 40, 60, seed=98, every_second_turn=3)
        job = self.write_job(requests, generation=GENERATION, parallel={"dp": 1, "cp": 2, "sp": 1, "tp": 1})
        described = self.folder / "described.yaml"
        command = [MPIEXEC, "-np", 2, "--bind-to", "none", PROGRAM, "topology", job]
        launch = self.launch(
            [*command, "--measure", "--cluster-file", described], {"XDG_CACHE_HOME": str(self.cache)}
        )
        self.assertEqual(launch.wait(), 0, launch.words())
        self.assertRegex(launch.out.read_text(), r"ring: keys travel where .* fitted to \d+ passes of up to \d+ tokens")
        self.assertIn("ring_rule:", described.read_text())
        (kept,) = self.clusters()
        measured = kept.read_text()
        for constant, ring in ((1000, "pass_kv"), (-1000, "pass_q")):
            with self.subTest(ring=ring):
                kept.write_text(re.sub(r"constant: [^,]+", f"constant: {constant}", measured))
                words = self.run_here(job, 2, "--fresh")
                self.assertIn("keys or queries by the times that pecia topology measured", words)
                modes = set(self.results(job)["mode"])
                self.assertTrue(all(f"/{ring}+".encode() in mode for mode in modes), modes)
        # Rings of other heads have rule B.
        kept.write_text(re.sub(r" heads: \d+", " heads: 4096", measured))
        self.assertNotIn("pecia topology measured of both", self.run_here(job, 2, "--fresh"))

    def test_a_cluster_is_fitted_to_runs(self) -> None:
        requests = random_requests(8, 400, 800, seed=93)
        runs = []
        for name, parallel in (("replicas", {"dp": 2}), ("ring", {"cp": 2})):
            job = self.write_job(requests, name, generation=GENERATION, parallel=parallel)
            self.run_job(job, 2)
            runs += ["--calibrate", self.output(job)]
        # Ten times too fast, so that the fit has something to do.
        described = self.folder / "described.yaml"
        share = "{gemm: 0.9, attention: 0.9, copy: 0.9, send: 1, collective: 1}"
        links = "{gbs: 10, us: 1, shared: false}"
        described.write_text(
            "ranks_per_server: 2\nservers_per_rack: 1\n"
            "rank: {name: fast, backend: cpu, flops: {fp32: 5.0e12, bf16: 5.0e12},"
            " memory_gbs: 500, memory_gib: 8}\n"
            f"links: {{server: {links}, rack: {links}, system: {links}}}\n"
            f"efficiency: {share}\noverhead: {{op_us: 0.1, step_us: 4}}\n"
        )
        fitted = self.folder / "fitted.yaml"
        plan = json.loads(
            self.plan("--cluster", described, *runs, "--cluster-file", fitted, "--json")
        )
        found = plan["calibration"]
        self.assertEqual(len(found["residuals"]), 2)
        for each in found["residuals"]:
            self.assertLess(abs(each["after_s"] - each["taken_s"]), abs(each["before_s"] - each["taken_s"]))
        for name, factor in found["factors"].items():
            self.assertLess(factor["after"], factor["before"], name)
        self.assertEqual(fitted.read_text(), plan["cluster"]["file"])
        text = self.plan("--cluster", fitted, *runs)
        self.assertIn(f"fitted to {runs[1]}, {runs[3]}:", text)

        # Another machine's description is not kept, and that of these ranks is.
        self.assertFalse(found["kept"])
        self.measured_before()
        (kept,) = self.clusters()
        measured = kept.read_text()
        again = json.loads(self.plan("--cluster", kept, *runs, "--json"))
        self.assertTrue(again["calibration"]["kept"])
        self.assertNotEqual(kept.read_text(), measured)
        self.assertIn(again["cluster"]["file"], kept.read_text())
        self.run_here(job, 2, "--fresh")
        self.assertIn("the cluster that is kept", self.report(job)["predicted"]["by"])

        complaint = self.plan("--cluster", described, "--calibrate", self.folder, expect=REFUSED)
        self.assertIn("there is no report.json", complaint)


if __name__ == "__main__":
    unittest.main()
