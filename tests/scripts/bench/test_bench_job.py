# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import sys
import time
import unittest
from pathlib import Path
from typing import Any

from pecia_tools.bench import job_report
from pecia_tools.bench.job import repeated, timed
from pecia_tools.bench.launched_run import launched
from pecia_tools.command import UserError
from support import ScriptTest, make_results, printed


def report() -> dict[str, Any]:
    """Main begins at 1000 s; MPI takes 1 s and the rest of the start 2 s; 10 s of the run after it."""
    return {
        "startup": {"main_unix_s": 1000.0, "mpi_s": 1.0, "read_job_s": 0.5, "load_weights_s": 1.5},
        "seconds": 12.0,
        "phases": {"prefill": {"seconds": 6.0}, "decode": {"seconds": 3.5}},
    }


class Timed(unittest.TestCase):
    def test_a_run_s_time_is_split_without_rest(self) -> None:
        found = timed(report(), 999.75, 1014.0)
        self.assertEqual(
            found["startup"],
            {"launch_s": 0.25, "mpi_s": 1.0, "read_job_s": 0.5, "load_weights_s": 1.5},
        )
        self.assertEqual(found["work_s"], 11)  # 1014 − 1003
        self.assertEqual(found["passes_s"], 9.5)
        self.assertEqual(found["between_passes_s"], 0.5)  # 12 − 2 − 9.5
        self.assertEqual(found["closing_s"], 1)  # 1014 − 1001 − 12
        self.assertEqual(
            found["work_s"], found["passes_s"] + found["between_passes_s"] + found["closing_s"]
        )


class Repeated(ScriptTest):
    def test_what_both_starts_computed_beyond_what_the_batch_needs(self) -> None:
        rows = [
            {"id": name, "state": 2, "slots": 4, "tokens": [5, 6, 7], "prompt": 10}
            for name in ("a", "b")
        ]
        make_results(self.folder / "results.h5", rows)
        # 26 tokens are needed; the first start made 18, the second 12 prompt tokens and 5 of answers.
        counts = {"prompt_tokens": 12, "output_tokens": 5}
        self.assertEqual(
            repeated(18, counts, self.folder),
            {"before_tokens": 18, "repeated_tokens": 9, "needed_tokens": 26},
        )


class LaunchedRuns(ScriptTest):
    """With a program in pecia's place: a Python interpreter of that name, as a rank's process shows its own."""

    def command(self, text: str) -> list[str]:
        program = self.folder / "pecia"
        if not program.exists():
            program.symlink_to(sys.executable)
        return [str(program), "-c", text]

    def log(self) -> Path:
        return self.folder / "log"

    def test_the_end_and_its_code(self) -> None:
        begun = time.time()
        with launched(self.command("raise SystemExit(75)"), self.log()) as run:
            ended = run.end(75)
        self.assertLessEqual(begun, run.begun_unix_s)
        self.assertLess(run.begun_unix_s, ended)
        self.assertLessEqual(ended, time.time())

    def test_another_code_is_told_with_the_last_words(self) -> None:
        with (
            self.assertRaisesRegex(UserError, "code 1, not 0.*\n.*no room"),
            launched(self.command("raise SystemExit('no room')"), self.log()) as run,
        ):
            run.end()

    def test_ranks_are_found_by_number_and_words_by_pattern(self) -> None:
        rank = 'OMPI_COMM_WORLD_RANK={} "$0" -c "import signal; signal.pause()" &'
        text = f"{rank.format(1)} {rank.format(0)} wait; echo 'pecia: rank 1 (host x) has died'"
        program = self.command("")[0]
        with launched(["sh", "-c", text, program], self.log()) as run:
            run.wait_for("both ranks", lambda: len(run.ranks()) == 2)
            first, second = run.ranks()
            for process, number in ((first, "0"), (second, "1")):
                environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
                self.assertIn(f"OMPI_COMM_WORLD_RANK={number}".encode(), environment)
            os.kill(second, signal.SIGKILL)
            run.wait_for("the end of the second", lambda: run.ranks() == [first])
            os.kill(first, signal.SIGKILL)
            begun = time.monotonic()
            self.assertGreater(run.seconds_to_words(r"rank 1 \(host .*\) has died", begun), 0)
            run.end(None)
            with self.assertRaisesRegex(UserError, "never said 'something else'"):
                run.seconds_to_words("something else", time.monotonic())

    def test_nothing_is_left_whatever_happens(self) -> None:
        with (
            self.assertRaisesRegex(ValueError, "meanwhile"),
            launched(self.command("import signal; signal.pause()"), self.log()) as run,
        ):
            run.wait_for("its process", lambda: len(run.ranks()) == 1)
            raise ValueError("meanwhile")
        self.assertEqual(run.ranks(), [])


class Tables(ScriptTest):
    def test_medians_and_rounds(self) -> None:
        lines: list[dict[str, Any]] = [{"what": "first", "startup": {"measure_s": 0.07}}]
        # 1, 3 and 2 % more than 10 s; the order of a pair differs by round.
        for number, more in enumerate((0.1, 0.3, 0.2), start=1):
            startup = dict.fromkeys(job_report.START, 0.01 * number)
            pair = [
                {
                    "what": "batch",
                    "round": number,
                    "job_layer": job_layer,
                    "work_s": work_s,
                    "between_passes_s": work_s / 200,
                    "closing_s": work_s / 100,
                    "startup": startup,
                }
                for job_layer, work_s in (("on", 10 + more), ("off", 10))
            ]
            lines += pair if number % 2 else pair[::-1]
            for requests, work_s in ((100, 0.5), (1100, 0.5 + 0.01 * number)):
                lines.append(
                    {
                        "what": "tiny",
                        "round": number,
                        "requests": requests,
                        "work_s": work_s,
                        "between_passes_s": work_s / 2,
                    }
                )
            again = {"before_tokens": 500, "repeated_tokens": 40 * number, "needed_tokens": 1000}
            lines.append({"what": "drain", "round": number, "exit_s": 0.1 * number, **again})
            for what in ("dead_rank", "hung_rank"):
                figures = {"named_s": number, "exit_s": number + 0.5, "silence_s": 3}
                lines.append({"what": what, "round": number, **figures, **again})
        text = printed(job_report.tables, lines)
        for row in (
            "| summary trace and progress: on against off | 2.00 % | 1.00 %, 3.00 %, 2.00 % |",
            "| between passes: plans, results made durable, progress | 0.50 % | 0.50 %, 0.50 %, 0.50 % |",
            "| in all, its passes too | 20 | 10, 20, 30 |",
            "| between passes | 10 | 5, 10, 15 |",
            "| MPI | 20 | 10, 20, 30 |",
            "| rates, where no earlier run measured them | 70 | 70 |",
            "| mpirun until the first token | 220 | 110, 220, 330 |",
            "| SIGTERM to all ranks until the end, code 75 | 0.20 | 0.10, 0.20, 0.30 |",
            "| SIGSTOP of a rank until it is named, limits.silence 3 s | 2.00 | 1.00, 2.00, 3.00 |",
            "| kill -9 | 500 | 80 | 40, 80, 120 | 8.0 % |",
        ):
            self.assertIn(row, text)
