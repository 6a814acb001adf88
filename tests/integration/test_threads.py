# SPDX-License-Identifier: Apache-2.0
"""Threads of a rank: their number and place follow the machine and the user's words, and results do not follow them."""

from __future__ import annotations

import os
import unittest
from typing import Any

from harness import ALL_DONE, DONE, PROGRAM, Results, RunTest, random_requests


class ThreadsTest(RunTest):
    def run_with(
        self, name: str, threads: str, *before: object, **environment: str
    ) -> tuple[Results, dict[str, Any], str]:
        """`threads` may be empty, as if it were not set; `before`: a command that starts the program."""
        job = self.write_job(
            random_requests(4, 5, 60, seed=3),
            name,
            generation={"max_new_tokens": 6, "ignore_eos": True, "logprobs": 2},
        )
        launch = self.launch(
            [*before, PROGRAM, "run", job], {"OMP_NUM_THREADS": threads, **environment}
        )
        words = self.end(launch, ALL_DONE)
        return self.results(job), self.report(job), words

    def test_results_are_the_same_on_any_number_and_place(self) -> None:
        cpus = sorted(os.sched_getaffinity(0))
        one, report, _ = self.run_with("one", "1")
        self.assertEqual(one.rows(DONE), [0, 1, 2, 3])
        self.assertEqual(report["modes"]["threads"], 1)
        many = len(cpus) + 3
        cases: list[tuple[str, str, list[object], int]] = [
            ("more-than-cores", str(many), [], many),
            ("one-cpu", "", ["taskset", "-c", cpus[-1]], 1),
        ]
        for name, threads, before, count in cases:
            with self.subTest(name):
                found, report, _ = self.run_with(name, threads, *before)
                self.assertEqual(report["modes"]["threads"], count)
                for row in range(4):
                    for column in ("tokens", "token_logprob"):
                        self.assertEqual(
                            found.slots(row, column).tobytes(), one.slots(row, column).tobytes()
                        )

    def test_words_that_bind_take_no_cores_away(self) -> None:
        """libgomp, were it loaded, would bind the process to one core before main."""
        alone, free, _ = self.run_with("free", "")
        bound, report, words = self.run_with("bound", "", OMP_PROC_BIND="true")
        self.assertEqual(report["modes"]["threads"], free["modes"]["threads"])
        self.assertIn("on a core of its own", words)
        self.assert_same_answers(bound, alone, [0, 1, 2, 3])


if __name__ == "__main__":
    unittest.main()
