# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import json
import unittest
from typing import Any

from pecia_tools.bench import growth as bench_growth
from pecia_tools.bench.common import Work
from pecia_tools.bench.growth import MIB, Fit, kv_bytes
from pecia_tools.command import Failure
from support import ScriptTest, quietly


class Growth(unittest.TestCase):
    def test_the_fit_finds_what_the_seconds_were_made_of(self) -> None:
        tokens = [2048, 4096, 32768]
        fit = Fit(tokens, [2e-4 * count + 3e-9 * count**2 for count in tokens])
        self.assertAlmostEqual(fit.a, 2e-4)
        self.assertAlmostEqual(fit.b, 3e-9)
        self.assertLess(max(abs(fit.differences)), 1e-9)
        self.assertAlmostEqual(fit(1000), 0.203)

    def test_short_prompts_count_as_much_as_long_ones(self) -> None:
        seconds = {1000: 1.1, 2000: 2.0, 100000: 100.0}  # the first is a tenth over 1 ms a token
        fit = Fit(list(seconds), list(seconds.values()))
        self.assertAlmostEqual(fit.a, 1.05e-3, delta=1e-5)
        self.assertLess(abs(fit.differences[2]), 0.01)


class Whole(ScriptTest):
    def setUp(self) -> None:
        super().setUp()
        self.model = self.folder / "model"
        self.model.mkdir()
        shape = {"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
        (self.model / "config.json").write_text(json.dumps({**shape, "hidden_size": 64}))
        (self.model / "model.safetensors").write_bytes(bytes(5 * MIB))

        self.play("pecia_tools.bench.common", ROOT=self.folder)

    def test_keys_and_values(self) -> None:
        self.assertEqual(kv_bytes(self.model, 10), 10 * 3 * 2 * 2 * 16 * 2)

    def test_every_case_in_turn_and_its_tables(self) -> None:
        asked: list[str] = []

        def bench(
            work: Work, options: argparse.Namespace, ranks: int, threads: int, *words: Any
        ) -> dict[str, Any]:
            asked.append(f"{ranks}×{threads} " + " ".join(map(str, words)))
            told = dict(zip(words[::2], words[1::2]))
            tokens = int(str(told["--tokens"]).split(",")[-1])
            seconds = tokens * 1e-3 + tokens**2 * 2e-6
            return {
                "tokens": tokens,
                "ranks": ranks,
                "seconds": {"median": seconds},
                "tokens_per_s": tokens / seconds,
                "cpu_s_per_token": 1e-3 * (1 + ranks / 10),
                "share_of_floor": 0.75,
                "exposed_comm_share": 0.01,
                "max_rss_bytes": 50 * MIB + kv_bytes(self.model, tokens),
                "flops": 2.0 * tokens + 0.002 * tokens**2,
            }

        self.play("pecia_tools.bench.growth", bench=bench)
        self.play("pecia_tools.bench.common.Work", build=lambda *_: None)
        json_file = self.folder / "out.jsonl"
        options: list[object] = ["--model", self.model, "--json", json_file, "--rounds", 2]
        options += ["--tokens", "512,1024,2048", "--ranks", "1,2", "--rank-tokens", 100]
        code, out, _ = quietly(bench_growth.main, *options, "--threads", 3)
        self.assertEqual(code, 0)
        one_round = [
            "1×3 --tokens 512,512 --runs 1 --warmups 0",
            "1×3 --tokens 512,1024 --runs 1 --warmups 0",
            "1×3 --tokens 512,2048 --runs 1 --warmups 0",
            "1×1 --tokens 100 --runs 1",
            "2×1 --tokens 100 --runs 1",
        ]
        self.assertEqual(asked, one_round * 2)
        self.assertRegex(out, r"\| 1024 \| 3.12 \| 328 \| 75 % \| 3.12 \([+-]0.0 %\) \| 0 \| 45 \|")
        self.assertIn("2.000e-03 of the seconds and 1.000e-03 of the FLOPs", out)
        self.assertIn("attention costs 2.00 times", out)
        self.assertIn("| 1 | 1100 | +0.0 % |", out)
        self.assertIn("| 2 | 1200 | +9.1 % |", out)
        kept = [json.loads(text) for text in json_file.read_text().splitlines()]
        self.assertEqual(
            [(line["round"], line["what"]) for line in kept],
            [(number, what) for number in (1, 2) for what in ["length"] * 3 + ["ranks"] * 2],
        )

    def test_what_fails_shows_its_last_words(self) -> None:
        self.play("pecia_tools.bench.common", BENCH=self.folder / "pecia-bench")
        self.write("pecia-bench", "#!/bin/sh\necho no memory; exit 1\n").chmod(0o755)
        options = bench_growth.parse(["--model", str(self.model)])
        with self.assertRaisesRegex(Failure, "(?s)no memory.*this failed: .*pecia-bench prefill.*code 1"):
            bench_growth.bench(Work("growth"), options, 1, 1)
