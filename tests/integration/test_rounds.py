# SPDX-License-Identifier: Apache-2.0
"""Rounds of one run: what a program asks for on standard input while ranks and weights stay."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import unittest
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import (
    ALL_DONE,
    DONE,
    DRAINED,
    FAILED,
    REFUSED,
    SOME_FAILED,
    VOCAB,
    Launch,
    Request,
    Results,
    RunTest,
    random_requests,
    wait_for,
    wait_for_state,
    write_shard,
)


class Rounds(RunTest):
    def setUp(self) -> None:
        super().setUp()
        for number in (1, 2, 3):
            write_shard(self.folder / f"{number}.h5", random_requests(4, 20, 90, seed=number))

    def job(self, **sections: Any) -> Path:
        generation = {"max_new_tokens": 12, "ignore_eos": True, "logprobs": 1}
        return self.write_job(
            name="job",
            **{"input": ["1.h5"], "output": "one/1", "generation": generation, **sections},
        )

    def begin(self, job: Path, ranks: int, *options: str, together: bool = True) -> Launch:
        launch = self.start(
            job, ranks, "--rounds", *options, stdin=subprocess.PIPE, together=together
        )
        assert launch.process.stdin is not None
        self.addCleanup(launch.process.stdin.close)
        return launch

    def ask(self, launch: Launch, line: str) -> None:
        assert launch.process.stdin is not None
        launch.process.stdin.write(line.encode() + b"\n")
        launch.process.stdin.flush()

    def ask_round(self, launch: Launch, number: int) -> None:
        self.ask(launch, json.dumps({"input": [f"{number}.h5"], "output": f"one/{number}"}))

    def told(self, launch: Launch) -> list[dict[str, Any]]:
        return [json.loads(line) for line in launch.out.read_text().splitlines()]

    def wait_for_round(self, launch: Launch, number: int) -> None:
        wait_for(f"the end of round {number}", lambda: len(self.told(launch)) >= number)

    def finish(self, launch: Launch, expect: int = ALL_DONE) -> str:
        assert launch.process.stdin is not None
        launch.process.stdin.close()
        self.assertEqual(launch.wait(), expect, launch.words())
        return launch.words()

    def assert_as_alone(self, job: Path, number: int, ranks: int) -> None:
        options = ("--set", f"input=[{number}.h5]", "--set", f"output=alone/{number}")
        self.run_job(job, ranks, *options)
        found, wanted = (
            Results.read(self.folder / run / str(number) / "results.h5") for run in ("one", "alone")
        )
        self.assertEqual(len(found.rows(DONE)), 4)
        self.assert_same_answers(found, wanted, wanted.rows(DONE))

    def test_answers_are_those_of_runs_of_their_own(self) -> None:
        for ranks, parallel in ((0, {}), (4, {"dp": 2, "tp": 2}), (2, {"cp": "elastic"})):
            with self.subTest(ranks=ranks, parallel=parallel):
                for path in self.folder.glob("*/*/results.h5"):
                    path.unlink()
                job = self.job(**({"parallel": parallel} if parallel else {}))
                launch = self.begin(job, ranks)
                for number in (2, 3):
                    self.wait_for_round(launch, number - 1)
                    self.ask_round(launch, number)
                words = self.finish(launch)
                self.assertIn("round 3: the weights stay", words)
                ends = [(Path(end["output"]).name, end["exit_code"]) for end in self.told(launch)]
                self.assertEqual(ends, [("1", 0), ("2", 0), ("3", 0)])
                for number in (2, 3):
                    self.assert_as_alone(job, number, ranks)

    def test_report_of_a_later_round_is_its_own(self) -> None:
        launch = self.begin(self.job(), 2)
        self.ask_round(launch, 2)  # while the first round runs
        self.finish(launch)
        first, second = (
            json.loads((self.folder / f"one/{number}/report.json").read_text()) for number in (1, 2)
        )
        self.assertGreater(sum(first["model"]["read_bytes_by_host"]), 0)
        self.assertEqual(sum(second["model"]["read_bytes_by_host"]), 0)
        self.assertIn("load_weights_s", first["startup"])
        self.assertNotIn("load_weights_s", second["startup"])
        self.assertEqual(second["counts"]["done"], 4)
        self.assertEqual([path.name for path in (self.folder / "one").rglob(".*")], [])

    def test_round_that_was_begun_before_goes_on(self) -> None:
        job = self.job(generation={"max_new_tokens": 400, "ignore_eos": True})
        launch = self.begin(job, 2)
        self.wait_for_round(launch, 1)
        self.ask_round(launch, 2)
        wait_for("round 2", (self.folder / "one/2/results.h5").exists)
        launch.signal_ranks(signal.SIGTERM)
        self.assertEqual(launch.wait(), DRAINED, launch.words())
        self.assertEqual([end["exit_code"] for end in self.told(launch)], [ALL_DONE, DRAINED])
        launch = self.begin(job, 2)
        self.wait_for_round(launch, 1)
        self.ask_round(launch, 2)
        self.assertIn("nothing is left to do", self.finish(launch))
        self.assertEqual(len(Results.read(self.folder / "one/2/results.h5").rows(DONE)), 4)

    def test_one_failed_request_tells_in_the_exit_code(self) -> None:
        bad = Request("bad", [[VOCAB + 7]])
        write_shard(self.folder / "1.h5", [*random_requests(2, 20, 40, seed=5), bad])
        launch = self.begin(self.job(), 2)
        self.wait_for_round(launch, 1)
        self.ask_round(launch, 2)
        self.finish(launch, expect=SOME_FAILED)
        self.assertEqual([end["exit_code"] for end in self.told(launch)], [SOME_FAILED, ALL_DONE])
        self.assertEqual(len(Results.read(self.folder / "one/1/results.h5").rows(FAILED)), 1)

    def test_line_that_is_no_round_is_refused(self) -> None:
        for ranks, line, reason in (
            (2, "{'input': 1}", "is no round; a line is"),
            (0, '{"input": ["2.h5"], "output": "x", "model": "y"}', "is no round; a line is"),
            (2, '{"input": ["nothing.h5"], "output": "x"}', "nothing.h5 matches no file"),
            (0, '{"input": ["2.h5"], "output": {"a": 1}}', "output"),
        ):
            with self.subTest(line=line):
                launch = self.begin(self.job(), ranks)
                self.wait_for_round(launch, 1)
                self.ask(launch, "")  # says nothing
                self.ask(launch, line)
                words = self.finish(launch, expect=REFUSED)
                (said,) = [text for text in words.splitlines() if reason in text]
                self.assertTrue(said.startswith("pecia: "), said)

    def test_stops_while_it_waits(self) -> None:
        for which in (slice(None), slice(1, 2)):
            launch = self.begin(self.job(), 2)
            self.wait_for_round(launch, 1)
            launch.ranks()
            launch.signal_ranks(signal.SIGTERM, which)
            self.assertEqual(launch.wait(10), DRAINED, launch.words())
            self.assertIn("stopped while it waited for another round", launch.words())

    def test_signals_may_come_late(self) -> None:
        launch = self.begin(self.job(), 2)
        self.wait_for_round(launch, 1)
        launch.ranks()
        launch.signal_ranks(signal.SIGTERM, slice(0, 1))
        wait_for("word of it", lambda: "stopped while it waited" in launch.words())
        with suppress(ProcessLookupError):  # it may have ended
            launch.signal_ranks(signal.SIGTERM, slice(1, 2))
        self.assertEqual(launch.wait(10), DRAINED, launch.words())

    def test_wall_time_counts_from_the_first_round(self) -> None:
        launch = self.begin(self.job(limits={"wall_time": 4, "grace": 1}), 2)
        self.wait_for_round(launch, 1)
        self.assertEqual(launch.wait(20), DRAINED, launch.words())

    def test_rank_that_dies_while_all_wait_ends_the_job(self) -> None:
        launch = self.begin(self.job(), 2, together=False)
        self.wait_for_round(launch, 1)
        launch.ranks()
        time.sleep(0.5)  # ranks show what they do ten times a second
        launch.signal_ranks(signal.SIGKILL, slice(1, 2))
        self.assertNotIn(launch.wait(20), (ALL_DONE, SOME_FAILED, DRAINED))
        host = os.uname().nodename
        self.assertRegex(launch.words(), rf"pecia: rank 1 \(host {host}\) has died in phase wait_for_round")

    def test_later_round_is_watched(self) -> None:
        job = self.job(generation={"max_new_tokens": 3000, "ignore_eos": True})
        write_shard(self.folder / "1.h5", random_requests(1, 20, 30, seed=6))
        launch = self.begin(job, 2, "--set", "generation.max_new_tokens=3000", together=False)
        self.ask_round(launch, 2)
        wait_for_state(self.folder / "one/1/results.h5", 0, DONE)
        wait_for("round 2", (self.folder / "one/2/results.h5").exists)
        launch.ranks()
        launch.signal_ranks(signal.SIGKILL, slice(1, 2))
        self.assertNotIn(launch.wait(20), (ALL_DONE, SOME_FAILED, DRAINED))
        self.assertRegex(launch.words(), r"pecia: rank 1 \(host \S+\) has died")


if __name__ == "__main__":
    unittest.main()
