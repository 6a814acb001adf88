# SPDX-License-Identifier: Apache-2.0
"""pecia-summarize with real runs: whatever moment it is killed at, the same command ends with the same tree."""

from __future__ import annotations

import os
import signal
import unittest
from collections import Counter
from pathlib import Path

from harness import (
    DONE,
    DRAINED,
    MPIEXEC,
    PROGRAM,
    SOURCE,
    Launch,
    Results,
    RunTest,
    random_draw,
    wait_for,
)
from word_model import make_word_model, some_words

MORE_KILLS, LONGEST_WAIT_S = 40, 0.05
KILLS = int(os.environ.get("PECIA_TEST_ROUNDS", "3"))  # at random moments, in runs.summaries.long
LAUNCH = f"{MPIEXEC} -np 2 --bind-to none"
CONTEXT, ANSWER = 600, 60


class Killed(RunTest):
    """A book of 25 parts in three chapters, which come to one summary in several rounds, and a short one."""

    def setUp(self) -> None:
        super().setUp()
        self.model = make_word_model(self.folder / "model")
        books = self.folder / "books"
        books.mkdir()
        chapters = [f"# Part {n}\n\n{some_words(1900 + 200 * n, n)}\n" for n in range(3)]
        (books / "long.md").write_text("\n".join(chapters))
        (books / "short.md").write_text(f"# Short\n\n{some_words(60)}\n")

    def summarize(self, output: str) -> Launch:
        # Answers do not depend on what else is in a pass, and all of them have words.
        settings = (
            *("reproducible=layout", "generation.temperature=1", "generation.ignore_eos=true"),
            *("report.trace=off", "report.progress=off"),
        )
        return self.launch(
            [
                *(SOURCE / "scripts/pecia-summarize", self.folder / "books"),
                *("--model", self.model, "--output", self.folder / output, "--pecia", PROGRAM),
                *("--launch", LAUNCH, "--context", CONTEXT, "--max-new-tokens", ANSWER),
                *(word for setting in settings for word in ("--set", setting)),
            ]
        )

    def finish(self, output: str) -> None:
        launch = self.summarize(output)
        self.assertEqual(launch.wait(), 0, launch.words())

    def tree(self, output: str) -> dict[str, str]:
        """Every file that a reader of summaries sees."""
        folder = self.folder / output
        found = {
            str(path.relative_to(folder)): path.read_text()
            for path in folder.rglob("*")
            if path.suffix in (".txt", ".csv", ".html") and "rounds" not in path.relative_to(folder).parts
        }
        self.assertIn("levels/long.txt", found)
        return found

    def rounds(self, output: str) -> list[Path]:
        folder = self.folder / output / "rounds"
        return sorted(folder.iterdir(), key=lambda path: int(path.name)) if folder.exists() else []

    def assert_same(self, output: str, wanted: str) -> None:
        self.assertEqual(self.tree(output), self.tree(wanted))
        for one, other in zip(self.rounds(output), self.rounds(wanted), strict=True):
            found, expected = (Results.read(path / "run/results.h5") for path in (one, other))
            self.assertEqual(found.rows(DONE), expected.rows(DONE), one.name)
            for row in expected.rows(DONE):
                self.assertEqual(found.tokens(row), expected.tokens(row), f"round {one.name}")

    def test_in_every_round(self) -> None:
        self.finish("whole")
        last = len(self.rounds("whole"))
        self.assertGreaterEqual(last, 3, "parts, chapters, the book")
        for number in range(1, last + 1):
            launch = self.summarize("killed")
            results = self.folder / "killed/rounds" / str(number) / "run/results.h5"
            wait_for(f"round {number}", results.exists)
            launch.kill()
        self.finish("killed")
        self.assert_same("killed", "whole")
        self.assertRegex(
            self.tree("killed")["long.txt"],
            rf"\A\[(\d+) of \1 parts, 100 % of [\d,]+ tokens, in {last} levels\]",
        )

    def begun_round(self, output: str) -> int:
        """The one that has begun and is not finished; 0: there is none."""
        for path in self.rounds(output):
            results = path / "run/results.h5"
            if results.exists() and any(Results.read(results)["state"] != DONE):
                return int(path.name)
        return 0

    def test_an_interrupt_drains(self) -> None:
        self.finish("whole")
        launch = self.summarize("interrupted")
        wait_for("round 1", (self.folder / "interrupted/rounds/1/run/results.h5").exists)
        os.killpg(launch.process.pid, signal.SIGINT)  # as Ctrl-C does
        self.assertEqual(launch.wait(), DRAINED, launch.words())
        self.finish("interrupted")
        self.assert_same("interrupted", "whole")

    def test_at_random_moments(self) -> None:
        draw = random_draw()
        self.finish("whole")
        every = range(1, len(self.rounds("whole")) + 1)
        kills: Counter[int] = Counter()  # by the round that they fell in
        again = 0

        def kill(launch: Launch, output: str) -> None:
            launch.kill()
            kills[self.begun_round(output)] += 1

        while kills.total() < KILLS:
            output = f"killed-{again}"
            again += 1
            for _ in range(4):  # then it may come to its end
                launch = self.summarize(output)
                if not launch.runs_for(draw.uniform(0.2, 4.0)):
                    break
                kill(launch, output)
            self.finish(output)
            self.assert_same(output, "whole")
        # Late rounds are short: those that no kill fell in get some of their own.
        for _ in range(MORE_KILLS):
            missing = [number for number in every if not kills[number]]
            if not missing:
                break
            output = f"killed-{again}"
            again += 1
            launch = self.summarize(output)
            results = self.folder / output / f"rounds/{missing[0]}/run/results.h5"
            wait_for(f"round {missing[0]}", results.exists)
            if launch.runs_for(draw.uniform(0, LONGEST_WAIT_S)):
                kill(launch, output)
            self.finish(output)
            self.assert_same(output, "whole")
        print(f"kills by round: {sorted(kills.items())}, 0: between rounds", flush=True)
        self.assertEqual([number for number in every if not kills[number]], [])


if __name__ == "__main__":
    unittest.main()
