# SPDX-License-Identifier: Apache-2.0
"""scripts/bench accuracy, whole: its log-likelihoods are those of the goldens, on any number of ranks."""

from __future__ import annotations

import json
import shutil
import subprocess
import unittest
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers

from harness import ALL_DONE, FAILURE, MODEL, POSITIONS, PROGRAM, SOURCE, VOCAB, RunTest


class AccuracyTest(RunTest):
    def setUp(self) -> None:
        super().setUp()
        self.model = self.folder / "golden"
        shutil.copytree(MODEL, self.model)
        words = Tokenizer(models.WordLevel({f"w{token}": token for token in range(VOCAB)}, "w0"))
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        words.save(str(self.model / "tokenizer.json"))

    def bench(
        self, tokens: list[int], *options: str, expect: int = ALL_DONE
    ) -> tuple[list[dict[str, Any]], str, str]:
        """Its JSON lines, its table and its notes."""
        text, lines = self.folder / "text.txt", self.folder / "lines.jsonl"
        text.write_text(" ".join(f"w{token}" for token in tokens))
        lines.unlink(missing_ok=True)
        command: list[object] = [SOURCE / "scripts/bench", "accuracy", "--program", PROGRAM]
        command += ["--model", self.model, "--text", text, "--threads", 1, "--json", lines]
        done = subprocess.run(
            [*map(str, command), *options], capture_output=True, check=False, text=True
        )
        self.assertEqual(done.returncode, expect, done.stderr)
        return [json.loads(line) for line in read_lines(lines)], done.stdout, done.stderr

    def test_the_likelihood_of_a_golden_s_next_token(self) -> None:
        golden = next(
            case
            for case in json.loads((MODEL / "golden.json").read_text())["cases"]
            if len(case["prompt"]) == 1
        )
        for token in (3, VOCAB - 1):
            lines, _, _ = self.bench([golden["prompt"][0], token], "--setting", "fp32")
            self.assertEqual(lines[0]["tokens"], 1)
            self.assertAlmostEqual(lines[0]["nll"], -golden["logprobs"][token], delta=1e-4)

    def test_settings_side_by_side_and_one_that_is_refused(self) -> None:
        # More than the model's length: two prompts, whose first tokens are not predicted.
        tokens = [3 + (7 * i * i + i) % (VOCAB - 3) for i in range(POSITIONS + 50)]
        lines, table, notes = self.bench(
            tokens,
            *("--setting", "fp32", "--setting", "rounded", "model.dtype=bf16"),
            *("--setting", "strange", "model.dtype=fp7", "--setting", "cut", "parallel.cp=1"),
            expect=FAILURE,
        )
        self.assertRegex(
            notes, r"strange was not measured: pecia: .*model\.dtype is fp7; it may be"
        )
        self.assertEqual([line["setting"] for line in lines], ["fp32", "rounded", "cut"])
        for line in lines:
            self.assertEqual(line["tokens"], len(tokens) - 2)
            self.assertRegex(table, rf"\| {line['setting']} \| {line['tokens']} \| [\d.]+ \|")
        alone, rounded, same = lines
        self.assertNotIn("difference", alone)
        self.assertEqual((alone["weights"], rounded["weights"]), ("fp32", "bf16"))
        self.assertAlmostEqual(rounded["difference"], rounded["nll"] - alone["nll"], delta=1e-9)
        self.assertGreater(rounded["largest"], 1e-4)  # weights of 8 bits of mantissa
        self.assertLess(abs(rounded["difference"]), 0.05)
        self.assertTrue(0.9 < rounded["same_most_likely"] < 1, rounded["same_most_likely"])
        self.assertEqual((same["largest"], same["same_most_likely"]), (0, 1))

        away, table, _ = self.bench(
            tokens, *("--setting", "fp32", "--setting", "rounded", "model.dtype=bf16"), "--divergence", "--recall"
        )
        self.assertEqual(away[1]["nll"], rounded["nll"])
        self.assertEqual(away[1]["same_most_likely"], rounded["same_most_likely"])
        self.assertTrue(0 < away[1]["divergence"] < 0.01, away[1]["divergence"])
        self.assertRegex(table, r"\| \d\.\d{5} ± \d\.\d{5} \| \d+ % \|")
        self.assertTrue(0 <= away[1]["recalled"] <= 1)

        on_two, _, _ = self.bench(tokens, "--setting", "fp32", "--ranks", "2")
        self.assertEqual(on_two[0]["ranks"], 2)
        self.assertAlmostEqual(on_two[0]["nll"], alone["nll"], delta=1e-5)


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    unittest.main()
