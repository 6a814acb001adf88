# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import unittest
from pathlib import Path
from typing import Any

from pecia_tools.bench import regress
from pecia_tools.bench.common import Work
from pecia_tools.bench.regress import Comparison, compare, times
from support import ScriptTest, quietly


def op(name: str, seconds: float) -> dict[str, Any]:
    return {"op": name, "shape": "8 rows", "median_s": seconds}


def prefill(tokens: int, seconds: float) -> dict[str, Any]:
    spread = {"median": seconds, "min": 0, "max": 9}
    return {"bench": "bench_prefill", "cpu": "A", "tokens": tokens, "seconds": spread}


def decode(batch: int, seconds: float) -> dict[str, Any]:
    spread = {"median": seconds, "min": 0, "max": 9}
    return {"bench": "bench_decode", "context": 512, "batch": batch, "step_seconds": spread}


class Cases(unittest.TestCase):
    def test_times_of_each_case_by_round(self) -> None:
        machine = {"machine": "2 threads", "bandwidth": 1e9}
        one_round = [prefill(512, 1), prefill(2048, 4), decode(8, 0.02), machine, op("add", 3)]
        lines = [*one_round, prefill(512, 2), prefill(2048, 5), decode(8, 0.03), op("add", 6)]
        self.assertEqual(
            times(lines),
            {
                "prefill of 512": [1, 2],
                "prefill of 2048": [4, 5],
                "decode step, context 512, batch 8": [0.02, 0.03],
                "add: 8 rows": [3, 6],
            },
        )


class Verdicts(ScriptTest):
    def verdict(self, old: list[float], new: list[float]) -> str:
        return Comparison("x", old, new).verdict

    def test_beyond_the_spread_of_either_side(self) -> None:
        self.assertEqual(self.verdict([10, 10, 10.5], [11, 11, 11]), "slower")  # 10 % over 5
        self.assertEqual(self.verdict([10, 10, 11.5], [11, 11, 11]), "")
        self.assertEqual(self.verdict([10, 10, 10], [11, 11, 12.5]), "")  # 10 % under 14
        self.assertEqual(self.verdict([11, 11, 11], [10, 10, 10.5]), "faster")
        self.assertEqual(self.verdict([11, 11, 12.5], [10, 10, 10]), "")

    def test_medians_count_not_means(self) -> None:
        one = Comparison("x", [10, 10, 40], [11, 11, 11])
        self.assertEqual(one.ratio, 1.1)
        self.assertEqual(one.noise, 3)

    def test_small_differences_are_noise_even_between_equal_rounds(self) -> None:
        self.assertEqual(self.verdict([100, 100], [101.9, 101.9]), "")
        self.assertEqual(self.verdict([100, 100], [102.1, 102.1]), "slower")
        self.assertEqual(self.verdict([102.1, 102.1], [100, 100]), "faster")

    def test_a_missing_round_is_refused(self) -> None:
        self.assert_refused(
            "add: 2 rounds of old and 1 of new", call=lambda: compare({"add": [1, 2]}, {"add": [1]})
        )

    def test_nothing_in_common_is_refused(self) -> None:
        self.assert_refused("no case in common", call=lambda: compare({"a": [1]}, {"b": [1]}))


class Report(ScriptTest):
    def report(self, old: list[dict[str, Any]], new: list[dict[str, Any]]) -> tuple[int, str, str]:
        self.play("pecia_tools.bench.common", ROOT=self.folder)
        work = Work("regress", self.json)
        return quietly(lambda _: regress.report(work, old, new, ("aaa", "bbb-dirty")))

    @property
    def json(self) -> Path:
        return self.folder / "lines.jsonl"

    def test_table_lines_and_exit_code(self) -> None:
        old = [prefill(512, 1), op("add", 2e-3), op("gone", 1), prefill(512, 1.01), op("add", 2e-3)]
        new = [
            prefill(512, 1.25),
            op("add", 2e-3),
            op("made", 1),
            prefill(512, 1.25),
            op("add", 2e-3),
        ]
        code, out, err = self.report(old, new)
        self.assertEqual(code, 1)
        self.assertIn("bbb-dirty against aaa, 2 rounds", out)
        self.assertIn("| prefill of 512 | 1005.000 | 1250.000 | 1.244 | 1.0 / 0.0 | slower |", out)
        self.assertIn("| add: 8 rows | 2.000 | 2.000 | 1.000 | 0.0 / 0.0 |  |", out)
        self.assertIn("only old has gone: 8 rows", err)
        self.assertIn("only new has made: 8 rows", err)
        self.assertIn("1 of 2 cases are slower", err)
        lines = [json.loads(line) for line in self.json.read_text().splitlines()]
        self.assertEqual([line["case"] for line in lines], ["prefill of 512", "add: 8 rows"])
        self.assertEqual(lines[0]["new_s"], [1.25, 1.25])
        self.assertEqual(
            {key: lines[0][key] for key in ("machine", "old", "new", "verdict")},
            {"machine": "A", "old": "aaa", "new": "bbb-dirty", "verdict": "slower"},
        )

    def test_faster_is_no_failure(self) -> None:
        code, out, _ = self.report([op("add", 2)], [op("add", 1)])
        self.assertEqual(code, 0)
        self.assertIn("| 0.500 | 0.0 / 0.0 | faster |", out)


FAKE_CMAKE = """#!/bin/sh
# Makes a benchmark of the tree that it is called with, which prints the seconds of the tree's file.
if [ "$1" != --build ]; then exit; fi
tree=${2%/build/release}
if [ -f "$tree/broken" ]; then echo no compiler; exit 1; fi
mkdir -p "$2/bin"
cat >"$2/bin/bench_ops" <<END
#!/bin/sh
echo '{"bandwidth": 1, "machine": "m"}'
echo "{\\"op\\": \\"add\\", \\"shape\\": \\"8 rows\\", \\"median_s\\": $(cat "$tree/seconds")}"
echo "$tree" >>"$ORDER"
END
cat >"$2/bin/pecia-bench" <<END
#!/bin/sh
while [ "\\$1" != --json ]; do shift; done
"$2/bin/bench_ops" >>"\\$2"
END
chmod +x "$2/bin/bench_ops" "$2/bin/pecia-bench"
"""


class Script(ScriptTest):
    """scripts/bench regress in a repository of its own, with a CMake that builds nothing."""

    def setUp(self) -> None:
        super().setUp()
        self.root = self.folder / "repository"
        scripts = Path(__file__).resolve().parents[3] / "scripts"
        shutil.copytree(
            scripts, self.root / "scripts", ignore=shutil.ignore_patterns("__pycache__")
        )
        (self.root / ".venv").symlink_to(scripts.parent / ".venv")
        for path, text in (
            ("repository/.gitignore", "/build/\n/runs/\n/.venv\n"),
            ("bin/cmake", FAKE_CMAKE),
        ):
            self.write(path, text).chmod(stat.S_IRWXU)
        self.git("init", "-q")
        self.commit("1.0")  # from before apps/bench
        self.write("repository/apps/bench/main.cpp", "")
        self.commit("2.0")

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        command = ["git", "-C", str(self.root), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def commit(self, seconds: str) -> None:
        self.write("repository/seconds", seconds)
        self.git("add", "-A")
        self.git("commit", "-qm", seconds)

    def bench(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "ORDER": str(self.folder / "order"),
        }
        command = [str(self.root / "scripts/bench"), "regress", *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        self.assertEqual(list((self.root / "build").glob("regress/*")), [], "a tree is left")
        self.assertEqual(len(self.git("worktree", "list").splitlines()), 1)
        return done

    def test_this_tree_against_the_last_commit_in_turn(self) -> None:
        done = self.bench("--only", "ops", "--rounds", "2")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(
            "| add: 8 rows | 1000.000 | 2000.000 | 2.000 | 0.0 / 0.0 | slower |", done.stdout
        )
        old, new = (
            Path("build/regress", self.git("rev-parse", "--short=10", "HEAD~1").strip()),
            Path(),
        )
        order = (self.folder / "order").read_text().splitlines()
        self.assertEqual(order, [str(self.root / side) for side in (old, new, old, new)])

    def test_against_a_named_commit_with_changes_that_are_in_none(self) -> None:
        self.write("repository/seconds", "1.01")
        done = self.bench("HEAD~1", "--only", "ops", "--rounds", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("-dirty against", done.stdout)
        self.assertIn("| 1.010 |", done.stdout)

    def test_a_commit_that_does_not_build(self) -> None:
        self.write("repository/broken", "")
        self.commit("2.0")
        (self.root / "broken").unlink()
        done = self.bench("HEAD", "--only", "ops")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no compiler", done.stderr)
        self.assertIn("this failed", done.stderr)

    def test_wrong_use(self) -> None:
        for arguments, words in (
            (("nothing",), "'nothing' is no commit"),
            (("--only", "comm"), "--only has 'comm'"),
            (("--rounds", "0"), "'0' is not a whole number"),
            (("--rounds",), "usage: bench regress"),
            (("--fast", "1"), "usage: bench regress"),
        ):
            with self.subTest(arguments=arguments):
                done = self.bench(*arguments)
                self.assertEqual(done.returncode, 2)
                self.assertIn(words, done.stderr)
