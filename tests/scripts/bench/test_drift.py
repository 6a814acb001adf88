# SPDX-License-Identifier: Apache-2.0
"""`bench drift` with a function in the place of the program, and its reference beside transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pecia_tools.bench import drift, hybrid_math
from pecia_tools.bench import model as bench_model
from pecia_tools.bench.hybrid_reference import log_probabilities
from support import ScriptTest, quietly

SHAPE = ["--layers=3", "--hidden=32", "--heads=4", "--kv-heads=2", "--head-dim=8", "--ffn=24", "--vocab=64"]
SHAPE += ["--full-every=2"]
EXPERTS = ["--experts=3", "--experts-per-token=2", "--shared-experts=2"]
TOKENS = np.array([7, 3, 60, 12, 12, 41, 0, 33, 9, 58, 27, 5], dtype=np.int32)

# Of these tokens by transformers 5.23.0 in fp32 (torch 2.15.0, eager attention).
EXPECTED: dict[str, tuple[list[str], str]] = {
    "delta net": (
        ["--delta-net=2:6:4"],
        "-3.540165 -3.065149 -4.864915 -3.291954 -4.498331 -5.265373 -5.752261 -4.656406 -4.723612 -5.277956 -5.931328",
    ),
    "Mamba-2": (
        ["--mamba=8:8:6:2"],
        "-5.420004 -4.541481 -4.22294 -3.202468 -4.474783 -5.792505 -4.790047 -5.035252 -5.037772 -5.672987 -3.984383",
    ),
    "Mamba-2 with experts": (
        ["--mamba=4:16:6:1", *EXPERTS],
        "-5.02462 -3.615116 -2.157725 -3.15343 -3.238627 -4.309508 -3.912053 -5.663935 -5.307563 -4.365031 -4.939274",
    ),
}


class Reference(ScriptTest):
    def made(self, *options: str) -> Path:
        folder = self.folder / "model"
        quietly(bench_model.main, folder, *SHAPE, *options)
        return folder

    def test_is_what_transformers_gives(self) -> None:
        for name, (options, wanted) in EXPECTED.items():
            with self.subTest(name):
                self.folder = self.folder / name
                found = log_probabilities(self.made(*options), TOKENS)
                np.testing.assert_allclose(found, np.array(wanted.split(), float), atol=1e-5)

    def test_tiles_do_not_change_it(self) -> None:
        tokens = np.random.default_rng(2).integers(0, 64, 40)
        whole = log_probabilities(self.made("--delta-net=2:4:8"), tokens)
        self.play("pecia_tools.bench.hybrid_math", ROWS=7, KEYS=5)
        self.play("pecia_tools.bench.hybrid_reference", ROWS=7)
        np.testing.assert_allclose(log_probabilities(self.folder / "model", tokens), whole, atol=1e-12)

    def test_attention_sees_what_came_before(self) -> None:
        q, k, v = np.random.default_rng(1).standard_normal((3, 6, 4))
        found = hybrid_math.attended(q, k, v)
        for row in range(6):
            weights = np.exp(k[: row + 1] @ q[row])
            np.testing.assert_allclose(found[row], weights @ v[: row + 1] / weights.sum(), atol=1e-12)

    def test_a_delta_net_learns_and_forgets(self) -> None:
        """By hand: one head whose keys are the axes."""
        k = np.array([[[1.0, 0]], [[1.0, 0]], [[0, 1.0]]])
        v, ones = np.array([[[3.0]], [[5.0]], [[7.0]]]), np.ones((3, 1))
        out = hybrid_math.delta_rule(np.full((3, 1, 2), [1.0, 10]), k, v, ones, ones)
        self.assertEqual(out.ravel().tolist(), [3, 5, 75])  # the second value takes the place of the first
        out = hybrid_math.delta_rule(np.full((3, 1, 2), [1.0, 10]), k, v, ones / 2, ones / 2)
        self.assertEqual(out.ravel().tolist(), [1.5, 2.875, 2.875 / 2 + 35])

    def test_mamba_2_adds_and_forgets(self) -> None:
        b = np.array([[[1.0, 0]], [[1.0, 0]], [[0, 1.0]]])
        x, ones = np.array([[[3.0]], [[5.0]], [[7.0]]]), np.ones((3, 1))
        out = hybrid_math.scanned(x, b, np.full((3, 1, 2), [1.0, 10]), ones / 2)
        self.assertEqual(out.ravel().tolist(), [3, 6.5, 73.25])

    def test_other_models_are_refused(self) -> None:
        folder = self.made(*EXPERTS, "--delta-net=2:4:8")
        self.assert_refused("qwen3_next", "granitemoehybrid", call=lambda: log_probabilities(folder, TOKENS))


class Drift(ScriptTest):
    def run_with(self, differences: Any, *options: str) -> tuple[str, dict[str, Any]]:
        """A run whose log-probabilities differ by these from the reference; what is printed, and the line."""
        model = self.folder / "model"
        quietly(bench_model.main, model, *SHAPE, "--delta-net=2:4:8")
        self.play("pecia_tools.bench.common", ROOT=self.folder)
        self.play("pecia_tools.bench.drift", ROOT=self.folder)
        (self.folder / "models").mkdir(exist_ok=True)

        def measured(work: Any, model: Path, tokens: np.ndarray, ranks: int, settings: list[str]) -> np.ndarray:
            self.asked = (len(tokens), ranks, settings)
            return log_probabilities(model, tokens) + differences

        self.play("pecia_tools.bench.drift", measured=measured)
        self.play("pecia_tools.bench.common.Work", build=lambda self, *targets: None)
        json_file = self.folder / "out.jsonl"
        arguments = ["--model", model, "--tokens", 41, "--json", json_file, *options]
        code, out, _ = quietly(drift.main, *arguments)
        self.assertEqual(code, 0)
        return out, json.loads(json_file.read_text().splitlines()[-1])

    def test_every_tenth_of_a_text_has_a_row(self) -> None:
        differences = np.zeros(40)
        differences[4:8] = [1e-3, -3e-3, 0, 0]
        out, line = self.run_with(differences, "--ranks", "2", "--set", "parallel.cp=2")
        self.assertEqual(self.asked, (41, 2, ["parallel.cp=2"]))
        self.assertEqual((line["bench"], line["tokens"], line["ranks"]), ("bench_drift", 41, 2))
        self.assertAlmostEqual(line["largest"], 3e-3)
        self.assertEqual([part["first"] for part in line["parts"]], list(range(1, 41, 4)))
        self.assertAlmostEqual(line["parts"][1]["mean_difference"], -5e-4)
        self.assertIn("|  | 5–8 | -5.00e-04 | 1.00e-03 | 3.00e-03 |", out)
        self.assertEqual(out.count("\n|"), 2 + 10)

    def test_the_reference_is_made_once(self) -> None:
        self.run_with(0)
        self.play("pecia_tools.bench.drift", log_probabilities=lambda *_: self.fail("made again"))
        _, line = self.run_with(0)
        self.assertEqual(line["largest"], 0)
        self.assertEqual(len(list((self.folder / "models").glob("model-float64-*.npy"))), 1)
