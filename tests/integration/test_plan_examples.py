# SPDX-License-Identifier: Apache-2.0
"""The plans that apps/planning.md and the help show: they run, and say what the text says that they say."""

from __future__ import annotations

import re
import shlex
import subprocess
import unittest

from harness import PROGRAM, SOURCE

# "$ pecia plan …" in a block of code, and its answer, in which … stands for lines that are left out.
EXAMPLE = re.compile(r"^```\n\$ (pecia plan .*)\n((?:.*\n)*?)```$", re.M)
OF_HELP = re.compile(r"^ +(pecia plan --model .*?)(?: *#.*)?$", re.M)


def answer_of(command: str) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    return subprocess.run(
        [PROGRAM, *words[1:]], capture_output=True, text=True, check=False, timeout=300
    )


class PlanExamples(unittest.TestCase):
    def test_answers_are_those_that_the_page_shows(self) -> None:
        examples = EXAMPLE.findall((SOURCE / "apps/planning.md").read_text())
        self.assertGreater(len(examples), 0)
        for command, shown in examples:
            with self.subTest(command):
                done = answer_of(command)
                self.assertEqual(done.returncode, 0, done.stderr)
                said = iter(done.stdout.splitlines())
                for line in shown.splitlines():
                    if line != "…":
                        self.assertIn(line, said, "it is not said, or sooner than the page shows it")

    def test_commands_of_the_help_run(self) -> None:
        commands = OF_HELP.findall(answer_of("pecia plan --help").stdout)
        self.assertGreater(len(commands), 1)
        for command in commands:
            with self.subTest(command):
                done = answer_of(command)
                self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
