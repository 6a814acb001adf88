# SPDX-License-Identifier: Apache-2.0
"""When jobs/slurm/pecia.sbatch takes a job for stuck: its own functions, over a program that is made up."""

import json
import re
import subprocess
from pathlib import Path
from typing import Optional

from support import ScriptTest

SCRIPT = Path(__file__).parents[3] / "jobs" / "slurm" / "pecia.sbatch"


def functions() -> str:
    """standing and is_stuck as the script has them."""
    both = r"^standing\(\) \{.*?^\}\nis_stuck\(\) \{.*?^\}\n"
    found = re.search(both, SCRIPT.read_text(), re.M | re.S)
    assert found is not None
    return found.group()


class StuckGuard(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.output = self.folder / "run"
        self.output.mkdir()
        (self.output / "starts.log").touch()

    def bash(self, command: str, chain: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{functions()}\n{command}"],
            env={"PATH": "/usr/bin:/bin", "output": str(self.output), "chain": chain}
            | {"BASH_ENV": str(self.fake_program())},
            capture_output=True,
            text=True,
            check=False,
        )

    def fake_program(self) -> Path:
        return self.write(
            "program.sh",
            f'inspect_folder() {{ cat "{self.output}/said.json"; }}\npecia=(inspect_folder)\n',
        )

    def start(self, found: Optional[tuple[int, int, int]], chain: str = "17") -> bool:
        """A start that finds so many settled turns, tokens of answers and kept tokens; whether it is one
        too many."""
        if found is not None:
            (self.output / "results.h5").touch()
            keys = ("settled_turns", "output_tokens", "kept_tokens")
            said = {
                "kind": "run",
                "results": {"done": 1, "output_tokens": 99},
                "durable": dict(zip(keys, found)),
                "report": {"counts": {"output_tokens": 5}},
            }
            (self.output / "said.json").write_text(json.dumps(said, indent=2))
        stuck = self.bash("is_stuck", chain)
        self.assertEqual(stuck.stderr, "")
        if stuck.returncode == 0:
            self.assertIn("two starts have added nothing", stuck.stdout)
            return True
        noted = self.bash('standing >>"$output/starts.log"', chain)
        self.assertEqual((noted.returncode, noted.stderr), (0, ""))
        return False

    def starts(self, *found: Optional[tuple[int, int, int]]) -> list[bool]:
        return [self.start(each) for each in found]

    def test_two_starts_that_add_nothing(self) -> None:
        self.assertEqual(self.starts(None, None, None), [False, False, True])

    def test_any_of_the_three_may_grow(self) -> None:
        grows = [None, (0, 0, 512), (0, 0, 1024), (0, 7, 1024), (1, 7, 1024), (2, 7, 0)]
        self.assertEqual(self.starts(*grows, (2, 7, 0), (2, 7, 0)), [False] * 7 + [True])

    def test_what_comes_and_goes_does_not_count(self) -> None:
        self.assertEqual(self.starts((0, 0, 0), (0, 0, 512), (0, 0, 0)), [False, False, True])

    def test_another_chain_and_older_notes_do_not_count(self) -> None:
        (self.output / "starts.log").write_text('17 {"kind":"results","done":3}\n17 none\n')
        self.assertEqual(self.starts((3, 0, 0), (3, 0, 0)), [False, False])
        self.assertFalse(self.start((3, 0, 0), chain="18"))
        self.assertTrue(self.start((3, 0, 0)))
