# SPDX-License-Identifier: Apache-2.0
"""Every job file in configs/ runs as its comment says, here on a tiny model and made-up prompts."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

from harness import MODEL, SOURCE, RunTest, random_requests, write_shard

CONFIGS = SOURCE / "configs"
COMMAND = re.compile(
    r"^#     mpirun -np (\d+) --bind-to none build/release/bin/pecia run configs/(.*)$", re.M
)
PIPELINE = "summaries"  # test_whole_examples runs it


class Examples(RunTest):
    def run_example(self, path: Path) -> None:
        text = path.read_text()
        commands = COMMAND.findall(text)
        self.assertEqual([name for _, name in commands], [path.name], "its command")
        prompts = self.folder / f"{path.stem}.h5"
        requests = random_requests(5, 20, 60, seed=1, every_second_turn=2)
        for index, request in enumerate(requests):
            request.arrival_s = 0.1 * index
        write_shard(prompts, requests, "fork" if path.stem == "questions" else "chain")
        output = self.folder / path.stem
        overrides = (
            f"model.path={MODEL}",
            f"input=[{prompts}]",
            f"output={output}",
            "generation.max_new_tokens=8",
        )
        settings = [word for override in overrides for word in ("--set", override)]
        self.run_job(path, int(commands[0][0]), *settings)

    def test_each_runs_on_the_ranks_that_its_comment_says(self) -> None:
        paths = [path for path in sorted(CONFIGS.glob("*.yaml")) if path.stem != PIPELINE]
        self.assertGreater(len(paths), 5)
        for path in paths:
            with self.subTest(path.name):
                self.run_example(path)

    def test_each_is_listed(self) -> None:
        listed = re.findall(r"^\| `(.*?\.yaml)` \|", (CONFIGS / "README.md").read_text(), re.M)
        self.assertEqual(sorted(listed), sorted(path.name for path in CONFIGS.glob("*.yaml")))


if __name__ == "__main__":
    unittest.main()
