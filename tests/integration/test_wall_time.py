# SPDX-License-Identifier: Apache-2.0
"""Starts that are too short for the whole job: each gets on, and ends in time."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
import unittest
from pathlib import Path

import h5py

from harness import (
    ALL_DONE,
    DONE,
    DRAINED,
    OPEN,
    PROGRAM,
    RunTest,
    random_requests,
    wait_for,
)

# Reading all of it takes some five seconds of a quiet core; a start has two.
LIMITS = {"wall_time": "3s", "grace": "1s"}
GENERATION = {"max_new_tokens": 40, "ignore_eos": True}


class ShortStartsTest(RunTest):
    def test_any_sequence_of_them_finishes_the_batch(self) -> None:
        requests = random_requests(60, 1500, 2500, seed=5)
        whole = self.write_job(requests, "whole", generation=GENERATION)
        began = time.monotonic()
        self.run_job(whole, 2)
        whole_s = time.monotonic() - began
        job = self.write_job(requests, "short", generation=GENERATION, limits=LIMITS)
        done = [0]
        code = DRAINED
        # A machine that is busy with other things is slower than it was a moment ago, up to a point.
        most = 8 + 4 * int(whole_s)
        while code == DRAINED and len(done) <= most:
            launch = self.start(job, 2, together=True)
            code = launch.wait()
            self.assertIn(code, (ALL_DONE, DRAINED), launch.words())
            done.append(self.done(job))
            if code == DRAINED:
                self.assertIn("the same command continues", launch.words())
        self.assertEqual(code, ALL_DONE, f"done after each start: {done}")
        self.assert_same_answers(self.results(job), self.results(whole), range(60))
        idle = sum(later == earlier for earlier, later in zip(done, done[1:]))
        self.assertLessEqual(idle, len(done) // 3, f"done after each start: {done}")

    def test_starts_that_are_killed_without_a_word_get_on_too(self) -> None:
        requests = random_requests(60, 1500, 2500, seed=5)
        whole = self.write_job(requests, "whole", generation=GENERATION)
        began = time.monotonic()
        self.run_job(whole, 2)
        most = 8 + 4 * int(time.monotonic() - began)
        job = self.write_job(requests, "killed", generation=GENERATION)
        done = []
        for _ in range(most):
            launch = self.start(job, 2)
            if not launch.runs_for(4):
                self.assertEqual(launch.wait(), ALL_DONE, launch.words())
                break
            launch.kill()
            if done:
                self.assertIn("earlier starts ended after", launch.words())
            done.append(self.done(job))
        else:
            self.fail(f"done after each start: {done}")
        self.assert_same_answers(self.results(job), self.results(whole), range(60))

    def test_what_no_start_can_answer_is_named_and_comes_last(self) -> None:
        requests = random_requests(6, 20, 40, seed=6)
        requests[0].turns = [requests[0].turns[0] * 60]
        requests[0].id = "a-book"
        requests[0].max_new_tokens = [2200]
        for request in requests[1:]:
            request.max_new_tokens = [4]
        job = self.write_job(
            requests,
            generation={"ignore_eos": True},
            limits={"grace": "1s"},
            kv={"save": "off"} if has_kv_save() else {},
        )
        self.run_job(job, 1)
        output = self.output(job)
        with h5py.File(output / "results.h5", "r+") as results:
            results["state"][:-1] = OPEN  # the last one stays answered, so the run keeps its rates
        starts = json.loads((output / "starts.json").read_text())
        for start in starts["starts"]:  # what the run believes, whatever this machine's speed is
            start["decode"] = {"pass_s": 0.1, "row_s": 0.0, "pair_s": 0.0}
        (output / "starts.json").write_text(json.dumps(starts))
        launch = self.start(job, 1, "--set", "limits.wall_time=60s")
        self.assertIn(launch.wait(), (ALL_DONE, DRAINED), launch.words())
        words = launch.words()
        self.assertRegex(words, r"request 'a-book' needs about .* a start has .*s: it comes last")
        found = self.results(job)
        self.assertLessEqual({1, 2, 3, 4, 5}, set(found.rows(DONE)), words)
        waits = found["queue_s"]
        if 0 in found.rows(DONE):  # it was faster than believed
            self.assertGreater(waits[0], max(waits[1:-1]))


def has_kv_save() -> bool:
    text = subprocess.run(
        [PROGRAM, "run", "--print-default"], capture_output=True, text=True, check=True
    ).stdout
    return "save:" in text


class Terminal:
    """The program as the foreground job of a terminal of its own."""

    def __init__(self, job: Path):
        self.process, self.master = pty.fork()
        if self.process == 0:
            os.environ["TERM"] = "xterm"
            os.execv(PROGRAM, [str(PROGRAM), "run", str(job)])
        self.shown = b""

    def press(self, key: bytes) -> None:
        os.write(self.master, key)

    def read(self) -> bool:
        try:
            part = os.read(self.master, 4096)
        except OSError:  # its last process has ended
            return False
        self.shown += part
        return bool(part)

    def wait_for(self, text: bytes) -> None:
        while text not in self.shown:
            if not self.read():
                raise AssertionError(f"{text!r} is not in {self.shown!r}")

    def end(self) -> int:
        while self.read():
            pass
        os.close(self.master)
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


class KeyboardTest(RunTest):
    """Ctrl-C on a terminal."""

    def start_on_terminal(self, name: str) -> Terminal:
        # One after the other, so that the last ones are far away when the first one is read.
        requests = random_requests(16, 3000, 3500, seed=7)
        job = self.write_job(
            requests,
            name,
            batch={"max_sequences": 1},
            generation={"max_new_tokens": 500, "ignore_eos": True},
            report={"trace": "off", "progress": "bar"},
        )
        terminal = Terminal(job)
        path = self.output(job) / "progress.json"
        wait_for("progress", path.exists)
        wait_for("tokens", lambda: json.loads(path.read_text())["prompt_tokens"]["done"] > 0)
        return terminal

    def test_first_drains_and_says_what_it_waits_for(self) -> None:
        terminal = self.start_on_terminal("once")
        terminal.press(b"\x03")
        terminal.wait_for(b"SIGINT: stops after a ")
        terminal.wait_for(b"a second Ctrl-C ends the run at once")
        self.assertEqual(terminal.end(), DRAINED)
        self.assertIn(b"the same command continues the run", terminal.shown)

    def test_second_stops_at_once(self) -> None:
        terminal = self.start_on_terminal("twice")
        os.kill(terminal.process, signal.SIGSTOP)  # so that no pass ends between the two
        terminal.press(b"\x03")
        time.sleep(0.1)
        os.kill(terminal.process, signal.SIGCONT)
        terminal.wait_for(b"SIGINT: stops after")
        terminal.press(b"\x03")
        self.assertIn(terminal.end(), (-signal.SIGINT, DRAINED))


if __name__ == "__main__":
    unittest.main()
