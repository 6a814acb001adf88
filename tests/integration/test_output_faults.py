# SPDX-License-Identifier: Apache-2.0
"""What a job's surroundings may do while it runs: inputs that vanish, a second job on the same folder, a wall clock
that jumps."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from harness import (
    ALL_DONE,
    DONE,
    FAILURE,
    MODEL,
    REFUSED,
    Results,
    RunTest,
    random_requests,
    wait_for,
    wait_for_state,
)

GREEDY: dict[str, Any] = {"max_new_tokens": 200, "ignore_eos": True, "logprobs": 1}
ONE_BY_ONE = {"max_sequences": 1, "order": "fcfs"}
SOON_DONE = ("--set", "generation.max_new_tokens=20")


class InputsTest(RunTest):
    def setUp(self) -> None:
        super().setUp()
        self.requests = random_requests(10, 5, 60, seed=8)
        self.requests[0].max_new_tokens = [4]
        for request in self.requests[1:]:
            request.max_new_tokens = [800]
        self.expected = self.once("undisturbed", self.undisturbed)
        # A copy that may be removed.
        self.model = self.folder / "model"
        self.model.mkdir()
        for path in MODEL.iterdir():
            (self.model / path.name).write_bytes(path.read_bytes())

    def undisturbed(self) -> Results:
        job = self.write_job(self.requests, "reference", generation=GREEDY)
        self.run_job(job, 1)
        return self.results(job)

    def job(self, **sections: Any) -> Path:
        return self.write_job(
            self.requests, model={"path": str(self.model)}, generation=GREEDY, **sections
        )

    def test_inputs_deleted_in_mid_run_are_not_missed(self) -> None:
        for ranks, batch in ((1, {}), (2, ONE_BY_ONE)):
            with self.subTest(ranks=ranks):
                job = self.job(output=f"{ranks}.run", batch=batch)
                launch = self.start(job, ranks)
                wait_for_state(self.output(job) / "results.h5", 0, DONE)
                kept = {path: path.read_bytes() for path in self.model.iterdir()}
                shard = self.folder / "job.h5"
                kept[shard] = shard.read_bytes()
                for path in kept:
                    path.unlink()
                self.assertTrue(launch.ranks(), "the run was over before")
                self.end(launch, ALL_DONE)
                found = self.results(job)
                self.assert_same_answers(found, self.expected, found.rows(DONE))
                self.assertEqual(found.rows(DONE), list(range(len(self.requests))))
                self.assertIn("job.h5", self.run_job(job, ranks, expect=REFUSED))
                for path, content in kept.items():
                    path.write_bytes(content)

    def test_a_shard_cut_off_in_mid_run_ends_it_and_keeps_what_is_done(self) -> None:
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                job = self.job(output=f"{ranks}.run", batch=ONE_BY_ONE)
                shard = self.folder / "job.h5"
                content = shard.read_bytes()
                launch = self.start(job, ranks)
                wait_for_state(self.output(job) / "results.h5", 0, DONE)
                os.truncate(shard, 100)
                code = launch.wait()
                before = self.results(job)
                self.assert_same_answers(before, self.expected, before.rows(DONE))
                # A small shard may be in memory already; then nobody is the worse for it.
                if code != ALL_DONE:
                    self.assertIn(code, (FAILURE, REFUSED), launch.words())
                    self.assertIn("job.h5", launch.words())
                wait_for("all processes to end", lambda launch=launch: not launch.processes(), 5)
                shard.write_bytes(content)
                self.run_job(job, ranks)
                after = self.results(job)
                self.assertEqual(after.rows(DONE), list(range(len(self.requests))))
                self.assert_same_answers(after, self.expected, after.rows(DONE))


class DisplacedOutputTest(RunTest):
    """The output folder is moved or removed while the run goes on."""

    def setUp(self) -> None:
        super().setUp()
        self.requests = random_requests(20, 5, 60, seed=8)
        self.requests[0].max_new_tokens = [4]
        for request in self.requests[1:]:
            request.max_new_tokens = [-1]  # as the job says: many at first, and few where it goes on

    def stopped(self, name: str, ranks: int, dp: int) -> tuple[Path, Any]:
        """A run whose ranks stand still, with one result, so that nothing is written meanwhile."""
        generation = {**GREEDY, "max_new_tokens": 2000}
        job = self.write_job(
            self.requests, name, generation=generation, batch=ONE_BY_ONE, parallel={"dp": dp}
        )
        launch = self.start(job, ranks)
        results = self.output(job) / "results.h5"
        wait_for(f"{results}", results.exists)
        launch.ranks()
        wait_for_state(results, 0, DONE)
        launch.signal_ranks(signal.SIGSTOP)
        return job, launch

    def test_moved(self) -> None:
        for ranks, dp in ((0, 1), (2, 2)):
            with self.subTest(ranks=ranks):
                job, launch = self.stopped(f"moved-{ranks}", ranks, dp)
                output, moved = self.output(job), self.folder / f"elsewhere-{ranks}"
                output.rename(moved)
                launch.signal_ranks(signal.SIGCONT)
                self.assertEqual(launch.wait(), FAILURE, launch.words())
                self.assertIn(f"{output / 'results.h5'} was moved", launch.words())
                self.assertIn(str(moved / "results.h5"), launch.words())
                self.assertFalse(output.exists(), list(output.rglob("*")))
                moved.rename(output)
                self.run_job(job, ranks, *SOON_DONE)
                found = self.results(job)
                self.assertEqual(found.rows(DONE), list(range(len(self.requests))))

    def test_removed(self) -> None:
        for ranks, dp in ((0, 1), (2, 2)):
            with self.subTest(ranks=ranks):
                job, launch = self.stopped(f"removed-{ranks}", ranks, dp)
                output = self.output(job)
                rescued = output.with_name(f"{output.name}.rescued.results.h5")
                shutil.rmtree(output)
                launch.signal_ranks(signal.SIGCONT)
                self.assertEqual(launch.wait(), FAILURE, launch.words())
                self.assertIn(f"{output / 'results.h5'} was removed", launch.words())
                self.assertIn(str(rescued), launch.words())
                output.mkdir()
                rescued.rename(output / "results.h5")
                self.assertIn(0, self.results(job).rows(DONE))
                self.run_job(job, ranks, *SOON_DONE)
                found = self.results(job)
                self.assertEqual(found.rows(DONE), list(range(len(self.requests))))


class TwoJobsTest(RunTest):
    def test_of_jobs_started_at_once_on_one_folder_one_runs(self) -> None:
        requests = random_requests(12, 5, 60, seed=8)
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                job = self.write_job(requests, f"job-{ranks}", generation=GREEDY)
                launches = [self.start(job, ranks) for _ in range(3)]
                codes = [launch.wait() for launch in launches]
                said = "\n".join(launch.words() for launch in launches)
                # One that starts late finds all done.
                self.assertIn(ALL_DONE, codes, said)
                self.assertLessEqual(set(codes), {ALL_DONE, REFUSED}, said)
                for code, launch in zip(codes, launches):
                    if code == REFUSED:
                        self.assertIn(str(self.output(job) / ".lock"), launch.words())
                        self.assertEqual(launch.words().count(".lock: "), 1, launch.words())
                found = self.results(job)
                self.assertEqual(found.rows(DONE), list(range(len(requests))))

    def test_the_second_is_told_who_holds_the_folder(self) -> None:
        job = self.write_job(
            random_requests(4, 5, 9, seed=8), generation={**GREEDY, "max_new_tokens": 3000}
        )
        first = self.start(job, 2)
        lock = self.output(job) / ".lock"
        wait_for("the first", lambda: (self.output(job) / "results.h5").exists())
        wait_for("all ranks", lambda: len(first.ranks()) == 2)
        first.signal_ranks(signal.SIGSTOP)
        for ranks in (0, 1, 3):
            words = self.run_job(job, ranks, expect=REFUSED)
            holder = json.loads(lock.read_text())
            self.assertIn(f"held by process {holder['pid']} on host {os.uname().nodename}", words)
            self.assertIn(holder["pid"], first.ranks())
            self.assertIn(f"pecia run {job}", words)
            self.assertEqual(words.count("held by"), 1, words)


class JumpingClockTest(RunTest):
    environment: ClassVar[dict[str, str]] = {
        "LD_PRELOAD": os.environ.get("PECIA_JUMPING_CLOCK", "")
    }

    def test_the_clock_of_this_test_does_jump(self) -> None:
        look = (
            "import time\nseen = set()\nend = time.monotonic() + 20\n"
            "while len(seen) < 2 and time.monotonic() < end: seen.add(round(time.time() / 86400))\n"
            "print(max(seen) - min(seen))"
        )
        said = subprocess.check_output(
            [sys.executable, "-c", look], env={**os.environ, **self.environment}
        )
        self.assertEqual(int(said), 2)

    def test_no_duration_is_of_the_wall_clock(self) -> None:
        requests = random_requests(12, 5, 60, seed=8, every_second_turn=3)
        generation = {**GREEDY, "max_new_tokens": 60}
        reference = self.write_job(requests, "reference", generation=generation)
        self.run_job(reference, 1)
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                job = self.write_job(
                    requests,
                    f"job-{ranks}",
                    generation=generation,
                    batch={"max_sequences": 3},
                    limits={"wall_time": "1h", "grace": "10s"},
                    report={"trace": "full", "progress": "lines"},
                )
                begin = time.monotonic()
                words = self.end(self.start(job, ranks, environment=self.environment), ALL_DONE)
                took = time.monotonic() - begin
                found = self.results(job)
                self.assert_same_answers(found, self.results(reference), found.rows(DONE))
                for name in found.columns:
                    if name.endswith("_s"):
                        self.assertTrue(
                            np.all(found[name] >= 0) and np.all(found[name] < took), name
                        )
                self.check_durations(self.report(job), took)
                self.check_durations(
                    json.loads((self.output(job) / "progress.json").read_text()), took
                )
                self.assertRegex(words, r"done, 0 failed in [\d.]+ m?s \(")
                self.assertRegex(words, r"· [\d.]+ m?s left")
                packed = (self.output(job) / "trace/trace.json.gz").read_bytes()
                trace = json.loads(gzip.decompress(packed))
                for event in trace["traceEvents"]:
                    self.assertLess(abs(event.get("ts", 0) / 1e6), took, event)
                    self.assertTrue(0 <= event.get("dur", 0) / 1e6 < took, event)

    def check_durations(self, value: Any, took: float, key: str = "") -> None:
        """Whatever is named after seconds lies within the run, but for points in time and what the job file says."""
        if isinstance(value, dict):
            for name, inner in value.items():
                if name != "job":
                    self.check_durations(inner, took, name)
        elif isinstance(value, list):
            for inner in value:
                self.check_durations(inner, took, key)
        elif isinstance(value, (int, float)) and re.fullmatch(r"seconds|.*(?<!_per)(?<!_unix)_s", key):
            self.assertTrue(0 <= value <= took, f"{key} is {value} of {took}")


if __name__ == "__main__":
    unittest.main()
