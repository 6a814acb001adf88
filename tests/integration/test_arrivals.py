# SPDX-License-Identifier: Apache-2.0
"""Requests that come while the run goes on: the same answers, not before their time, and a way out."""

from __future__ import annotations

import json
import os
import signal
import time
import unittest
from pathlib import Path
from typing import Any

import numpy as np

from harness import DONE, DRAINED, OPEN, REFUSED, Request, RunTest, random_requests, wait_for_state

GENERATION: dict[str, Any] = {"max_new_tokens": 12, "ignore_eos": True}


def with_arrivals(requests: list[Request], times: list[float]) -> list[Request]:
    for request, arrival_s in zip(requests, times):
        request.arrival_s = arrival_s
    return requests


def cpu_seconds(process: int) -> float:
    """Of user and system time so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class ReplayTest(RunTest):
    def replay(self, requests: list[Request], name: str, **sections: Any) -> Path:
        sections["batch"] = {"arrivals": "replay", **sections.get("batch", {})}
        return self.write_job(requests, name, generation=GENERATION, **sections)

    def progress(self, job: Path) -> dict[str, Any]:
        return json.loads((self.output(job) / "progress.json").read_text())

    def test_answers_are_those_of_a_run_that_ignores_arrivals(self) -> None:
        times = [0.4, 0.0, 0.8, 0.4, 0.1, 0.8]
        requests = with_arrivals(random_requests(6, 5, 60, seed=71, every_second_turn=3), times)
        ignoring = self.write_job(requests, "ignore", generation=GENERATION)
        self.run_job(ignoring, 2)
        expected = self.results(ignoring)
        self.assertIsNone(self.report(ignoring)["counts"]["arrived"])
        for name, parallel, batch in (
            ("one", {"dp": 1}, {"order": "fcfs"}),
            ("longest-first", {"dp": 1}, {"order": "longest_first"}),
            ("replicas", {"dp": 2}, {"order": "fcfs"}),
            ("teams", {"cp": "elastic"}, {}),
            ("teams-in-order", {"cp": "elastic"}, {"objective": "throughput", "order": "fcfs"}),
            ("tbt", {"dp": 1}, {"objective": {"tbt": "1ms"}}),
            ("tbt-chunked", {"dp": 1}, {"objective": {"tbt": "1ms"}, "policy": "chunked"}),
            ("tbt-teams", {"cp": "elastic"}, {"objective": {"tbt": "1h"}}),
        ):
            with self.subTest(name):
                job = self.replay(requests, f"replay-{name}", parallel=parallel, batch=batch)
                self.run_job(job, 2, "--validate")  # without times of passes
                self.run_job(job, 2)
                found, report = self.results(job), self.report(job)
                self.assertEqual(found.rows(DONE), list(range(8)))
                self.assert_same_answers(found, expected, range(8))
                self.assertGreaterEqual(report["seconds"], max(times))
                self.assertEqual(report["counts"]["arrived"], 8)
                self.assertEqual(self.progress(job)["turns"]["arrived"], 8)
                self.assertTrue((found["queue_s"] >= 0).all())
                # Tokens cannot come before their request has, and the run ended after the last.
                self.assertTrue((found["ttft_s"] > found["queue_s"]).all())
                ends = found["ttft_s"] + found["decode_s"]
                self.assertTrue((ends < report["seconds"]).all())
                self.assertGreater(report["ttft_s"]["p99"], 0)
                self.assertGreater(report["tbt_s"]["p99"], 0)
                if name == "tbt-teams":
                    self.assertEqual(report["tbt_goal"], {"goal_s": 3600, "later": 0, "share_kept": 1})
                elif name.startswith("tbt"):
                    self.assertEqual(report["tbt_goal"]["goal_s"], 0.001)
                else:
                    self.assertIsNone(report["tbt_goal"])

    def test_times_count_from_the_arrival(self) -> None:
        # One at a time: the second waits for the first, the third for nobody.
        requests = with_arrivals(random_requests(3, 900, 900, seed=72), [0.0, 0.0, 0.0])
        job = self.replay(requests, "queue", batch={"order": "fcfs", "max_sequences": 1})
        self.run_job(job, 2)
        found = self.results(job)
        served = found["ttft_s"] + found["decode_s"]
        self.assertGreaterEqual(found["queue_s"][1], 0.99 * served[0])
        self.assertGreaterEqual(found["queue_s"][2], 0.99 * served[1])
        self.assertTrue((np.diff(found["queue_s"]) > 0).all())

    def test_a_signal_ends_the_waiting_and_the_next_run_waits_anew(self) -> None:
        requests = with_arrivals(random_requests(3, 5, 30, seed=73), [0.0, 1.0, 600.0])
        job = self.replay(requests, "drain")
        launch = self.start(job, 2, together=True)
        wait_for_state(self.output(job) / "results.h5", 1, DONE)
        launch.signal_ranks(signal.SIGTERM, slice(1, 2))
        begin = time.monotonic()
        words = self.end(launch, DRAINED)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertIn("2 done, 0 failed, 1 to continue, 2 arrived", words)
        found = self.results(job)
        self.assertEqual(found["state"].tolist(), [DONE, DONE, OPEN])
        self.assertEqual(self.progress(job)["turns"]["arrived"], 2)
        kept = found.row_bytes(1)
        self.run_job(job, 2, "--set", "batch.arrivals=ignore")
        found = self.results(job)
        self.assertEqual(found.rows(DONE), [0, 1, 2])
        self.assertEqual(found.row_bytes(1), kept)

    def test_a_wall_time_ends_the_waiting(self) -> None:
        requests = with_arrivals(random_requests(2, 5, 30, seed=74), [0.0, 600.0])
        job = self.replay(requests, "limit", limits={"wall_time": "6s", "grace": "3s"})
        self.run_job(job, 2, expect=DRAINED)
        self.assertEqual(self.results(job)["state"].tolist(), [DONE, OPEN])

    def test_waiting_leaves_the_cores_to_others(self) -> None:
        requests = with_arrivals(random_requests(2, 5, 30, seed=75), [0.0, 600.0])
        job = self.replay(requests, "idle")
        launch = self.start(job, 2, together=True)
        wait_for_state(self.output(job) / "results.h5", 0, DONE)
        ranks = launch.ranks()
        before = [cpu_seconds(rank) for rank in ranks]
        self.assertTrue(launch.runs_for(2))
        for rank, seconds in zip(ranks, before):
            self.assertLess(cpu_seconds(rank) - seconds, 0.5)
        launch.signal_ranks(signal.SIGTERM)
        self.end(launch, DRAINED)
        self.assertTrue(all(rank["idle_s"] > 1.5 for rank in self.report(job)["ranks"]))

    def test_shards_without_arrivals_are_refused(self) -> None:
        job = self.replay(random_requests(2, 5, 30, seed=76), "absent")
        words = self.run_job(job, 2, expect=REFUSED)
        self.assertIn("absent.h5: /arrival_s is missing", words)
        self.assertFalse((self.output(job) / "results.h5").exists())


if __name__ == "__main__":
    unittest.main()
