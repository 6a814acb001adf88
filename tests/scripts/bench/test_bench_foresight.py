# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pecia_tools.bench import foresight as bench_foresight
from support import ScriptTest, quietly


class Foresight(ScriptTest):
    """The programs are played: by the descriptions before and after a mode, plans foresee as much as it takes and a
    fifth more, in one order or the other, and this model has no SP."""

    def setUp(self) -> None:
        super().setUp()
        self.asked: list[str] = []
        work = self.folder / "runs/bench-foresight"
        self.play("pecia_tools.bench.common", ROOT=self.folder)
        self.play("pecia_tools.bench.common.Work", build=lambda *_: None)
        self.play("pecia_tools.bench.foresight", launched=self.launched, WORK=work)

    def launched(self, ranks: int, *command: Any) -> str:
        text = [str(word) for word in command]
        program, told = Path(text[0]).name, dict(zip(text[1:], text[2:]))
        self.asked.append(f"{ranks} × {program} {' '.join(text[1:2])}")
        if program == "pecia" and text[1] == "topology":
            Path(told["--cluster-file"]).write_text("a cluster")
            return ""
        if program == "pecia":
            return self.plan(text)
        lines: list[dict[str, Any]] = [{"chosen_masters": 1}]  # a line of another kind
        if text[1] == "prefill":
            self.assertEqual(told["--batch-tokens"], "4096")
            tokens = [int(word) for word in told["--tokens"].split(",")]
            lines += [{"tokens": count, "seconds": {"median": count * 1e-3}} for count in tokens]
        else:
            contexts = [int(word) for word in told["--contexts"].split(",")]
            lines += [{"context": count, "step_seconds": {"median": 0.01}} for count in contexts]
        Path(told["--json"]).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return ""

    def plan(self, words: list[str]) -> str:
        if any(word.startswith("parallel.sp=") for word in words):
            raise bench_foresight.Refused("2 ranks of SP do not divide 3 heads")
        asked = [words[i + 1] for i, word in enumerate(words) if word == "--request"]
        descriptions = sum("topology" in command for command in self.asked)
        share = 1.0 if descriptions % 2 else 1.2
        requests = [
            {
                "prompt_tokens": int(one.split(":")[0]),
                "ttft_s": int(one.split(":")[0]) * share * 1e-3,
                "tbt_s": share * 0.01,
                "prefill": {"gemm_s": 1},
            }
            for one in asked
        ]
        return json.dumps({"plans": [{"requests": requests, "max_batch_tokens": 4096}]})

    def test_each_mode_beside_what_was_foreseen(self) -> None:
        json_file = self.folder / "out.jsonl"
        options: list[object] = ["--model", self.folder, "--json", json_file, "--rounds", 1]
        options += ["--tokens", "512,1024", "--ranks", "1,2", "--threads", 2]
        code, out, err = quietly(bench_foresight.main, *options)
        self.assertEqual(code, 0)
        self.assertEqual(self.asked[0], "1 × pecia topology")
        # Before the first mode, and after each that can run.
        self.assertEqual(self.asked.count("2 × pecia topology"), 1 + 5)
        self.assertIn("sp is left out: 2 ranks of SP do not divide 3 heads", err)
        self.assertIn("1 × 2 | alone | 512 | 563.2 | 512.0 | +10.0 % |", out)
        self.assertIn("2 × 1 | tp sp_tp | 1024 | 1126.4 | 1024.0 | +10.0 % |", out)
        self.assertIn("2 × 1 | cp pass_q | 512 | 11.0 | 10.0 | +10.0 % |", out)
        self.assertIn("In the median off by 10.0 %, at most by 10.0 %.", out)
        lines = [json.loads(text) for text in json_file.read_text().splitlines()]
        modes = {(line["ranks"], line["mode"], line["what"]) for line in lines}
        self.assertEqual(
            modes,
            {
                (1, "alone", "prompt"),
                (1, "alone", "step"),
                *((2, mode, "prompt") for mode in ("cp pass_kv", "cp pass_q", "tp")),
                *((2, mode, "step") for mode in ("cp pass_kv", "cp pass_q", "tp")),
                (2, "tp sp_tp", "prompt"),
                (2, "tp gathered", "prompt"),
            },
        )

    def test_rounds_count_by_their_median(self) -> None:
        common = {"model": "m", "ranks": 1, "threads": 1, "mode": "alone", "what": "step"}
        lines = [
            {**common, "tokens": 512, "foreseen_s": foreseen, "seconds": 1.0, "off": foreseen - 1}
            for foreseen in (1.1, 1.2, 9.0)
        ]
        _, out, _ = quietly(lambda _: bench_foresight.tables(lines) or 0)
        self.assertIn("| 512 | 1200.0 | 1000.0 | +20.0 % |", out)
        self.assertNotIn("9000", out)

    def test_an_unknown_mode_is_named(self) -> None:
        with self.assertRaises(SystemExit):
            quietly(bench_foresight.parse, "--modes", "ring")
