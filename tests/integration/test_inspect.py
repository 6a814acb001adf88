# SPDX-License-Identifier: Apache-2.0
"""Looking at a run while it goes on, which must not disturb it."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import time
import unittest
from pathlib import Path
from typing import Any

from harness import (
    DONE,
    DRAINED,
    OPEN,
    PARTIAL,
    PROGRAM,
    Launch,
    RunTest,
    random_requests,
    wait_for,
    wait_for_state,
)

GREEDY: dict[str, Any] = {"max_new_tokens": 5, "ignore_eos": True}


class WatchTest(RunTest):
    def start_long_run(self) -> tuple[Path, Launch]:
        """One short answer and three that take until the run is stopped."""
        requests = random_requests(4, 10, 40, seed=21)
        for index, request in enumerate(requests):
            request.max_new_tokens = [5 if index == 0 else 3500]
        job = self.write_job(requests, generation=GREEDY)
        launch = self.start(job, 2, together=True)
        wait_for("all ranks", lambda: len(launch.ranks()) == 2)
        wait_for_state(self.output(job) / "results.h5", 0, DONE)
        return job, launch

    def watch(self, path: Path, *options: str) -> Launch:
        return self.launch([PROGRAM, "inspect", path, "--watch", "--interval", "0.02", *options])

    def wait_for_lines(self, watch: Launch) -> None:
        wait_for("some lines", lambda: len(watch.out.read_text().splitlines()) > 3)

    def wait_until_it_waits(self, watch: Launch) -> None:
        wait_for("its word", lambda: "no run has begun there yet" in watch.words())

    def test_json_line_after_line_until_the_run_is_drained(self) -> None:
        job, run = self.start_long_run()
        watch = self.watch(self.output(job), "--json")
        self.wait_for_lines(watch)
        self.assertTrue(watch.runs_for(0.1), "it watches as long as the run goes on")
        run.signal_ranks(signal.SIGTERM)
        self.end(run, DRAINED)
        self.assertEqual(watch.wait(), 0)
        seen = [json.loads(line) for line in watch.out.read_text().splitlines()]
        self.assertEqual({one["state"] for one in seen[:-1]}, {"running"})
        self.assertEqual(seen[0]["holder"]["pid"], run.known_ranks[0])
        self.assertEqual(seen[-1]["state"], "stopped")
        self.assertTrue(seen[-1]["progress"]["finished"])
        self.assertLess(seen[-1]["progress"]["age_s"], 60)
        found, last = self.results(job), seen[-1]["results"]
        self.assertEqual(last["done"], len(found.rows(DONE)))
        self.assertEqual(last["partial"], len(found.rows(PARTIAL)))
        self.assertEqual(last["open"], len(found.rows(OPEN)))

    def test_only_the_last_line_says_that_it_is_over(self) -> None:
        """Whenever the run ends, also between two looks of the same round."""
        job = self.write_job(random_requests(2, 5, 20, seed=8), generation=GREEDY)
        self.run_job(job, 1)
        lock = self.output(job) / ".lock"
        start = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        holder = {"host": os.uname().nodename, "pid": os.getpid(), "process_start": start}
        for turn in range(12):
            lock.write_text(json.dumps({**holder, "started": "today", "command": "a test"}))
            watch = self.launch(
                [PROGRAM, "inspect", self.output(job), "--watch", "--interval", "0.01", "--json"]
            )
            self.wait_for_lines(watch)
            time.sleep(turn * 0.0007)
            lock.unlink()
            self.assertEqual(watch.wait(), 0)
            states = [json.loads(line)["state"] for line in watch.out.read_text().splitlines()]
            self.assertEqual(set(states[:-1]), {"running"}, states[-3:])
            self.assertEqual(states[-1], "finished")

    def test_line_after_line_in_a_log_until_the_run_is_killed(self) -> None:
        job, run = self.start_long_run()
        watch = self.watch(self.output(job))
        self.wait_for_lines(watch)
        run.kill()
        self.assertEqual(watch.wait(), 0)
        lines = watch.out.read_text().splitlines()
        self.assertRegex(
            lines[0], r"^\d\d:\d\d:\d\d running · 1 of 4 turns done, 0 failed, 0 partial"
        )
        text = "\n".join(lines)
        self.assertIn(": run, killed, process ", text)
        self.assertIn("the same command continues it", text)
        self.assertNotIn("\x1b", text)

    def test_results_file_is_watched_like_its_folder(self) -> None:
        job, run = self.start_long_run()
        watch = self.watch(self.output(job) / "results.h5")
        wait_for("a line", lambda: " 1 of 4 turns done" in watch.out.read_text())
        run.kill()
        self.assertEqual(watch.wait(), 0)
        self.assertIn("4 turns: 1 done", watch.out.read_text())

    def test_terminal_is_drawn_over(self) -> None:
        job = self.write_job(random_requests(2, 5, 20, seed=8), generation=GREEDY)
        self.run_job(job, 1)
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(PROGRAM, [str(PROGRAM), "inspect", str(self.output(job)), "--watch"])
        shown = b""
        while True:
            try:
                part = os.read(terminal, 4096)
            except OSError:  # Linux: the other end is closed
                break
            if not part:
                break
            shown += part
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertTrue(shown.startswith(b"\x1b[H\x1b[J"), shown)
        self.assertIn(b": run, finished\r\n", shown)

    def test_folder_that_is_about_to_exist_is_awaited(self) -> None:
        job = self.write_job(random_requests(2, 5, 20, seed=8), generation=GREEDY)
        for made in (False, True):  # also a folder that somebody has made ahead
            with self.subTest(made=made):
                shutil.rmtree(self.output(job), ignore_errors=True)
                if made:
                    self.output(job).mkdir()
                watch = self.watch(self.output(job), "--json")
                self.wait_until_it_waits(watch)
                self.assertTrue(watch.runs_for(0.3))
                self.run_job(job, 2)
                self.assertEqual(watch.wait(), 0)
                self.assertEqual(watch.words().count("no run has begun there yet"), 1)
                seen = [json.loads(line) for line in watch.out.read_text().splitlines()]
                self.assertEqual(seen[-1]["state"], "finished")

    def test_awaiting_ends_on_an_interrupt(self) -> None:
        watch = self.watch(self.folder / "never")
        self.wait_until_it_waits(watch)
        watch.process.send_signal(signal.SIGINT)
        self.assertIn(watch.wait(), (-signal.SIGINT, 128 + signal.SIGINT))

    def test_no_run_can_begin_in_a_folder_that_is_not_there(self) -> None:
        watch = self.watch(self.folder / "absent" / "run")
        self.assertEqual(watch.wait(), 2)
        self.assertIn(f"neither is the folder {self.folder}/absent", watch.words())

    def test_folder_without_a_run(self) -> None:
        watch = self.watch(self.folder)
        self.assertEqual(watch.wait(), 2)
        self.assertIn("no run has begun in it", watch.words())


if __name__ == "__main__":
    unittest.main()
