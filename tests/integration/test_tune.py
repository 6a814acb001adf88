# SPDX-License-Identifier: Apache-2.0
"""pecia tune: what it measures and writes, and jobs that choose their settings by its file."""

from __future__ import annotations

import json
import unittest
from pathlib import Path

from safetensors.numpy import load_file, save_file

from harness import (
    ALL_DONE,
    LEAVE_TOGETHER,
    MODEL,
    MPIEXEC,
    PROGRAM,
    REFUSED,
    RunTest,
    random_requests,
    write_shard,
)

RANKS = 2
CSA = {"sparse": "csa", "drop": {"file": "tuned.json"}}


def make_deeper(model: Path, layers: int) -> None:
    """A copy of the tests' model whose layers are repeated: its first and last one drop nothing."""
    model.mkdir()
    config = json.loads((MODEL / "config.json").read_text())
    own = config["num_hidden_layers"]
    (model / "config.json").write_text(json.dumps({**config, "num_hidden_layers": layers}))
    tensors = {}
    for name, values in load_file(MODEL / "model.safetensors").items():
        if not name.startswith("model.layers."):
            tensors[name] = values
            continue
        number, tail = name.removeprefix("model.layers.").split(".", 1)
        for layer in range(int(number), layers, own):  # of attention that prefers some tokens
            tensors[f"model.layers.{layer}.{tail}"] = 4 * values if "q_proj" in tail else values
    save_file(tensors, model / "model.safetensors")


class TuneTest(RunTest):
    def setUp(self) -> None:
        super().setUp()
        self.model = self.folder / "deeper"
        make_deeper(self.model, layers=5)
        self.calibration = self.folder / "texts.h5"
        self.tuned = self.folder / "tuned.json"
        requests = random_requests(3, 400, 900, seed=5)
        write_shard(self.calibration, requests)
        self.job = self.write_job(
            requests, model={"path": str(self.model)}, attention=CSA, parallel={"cp": RANKS}
        )

    def tune(self, *options: object, ranks: int = RANKS, expect: int = ALL_DONE) -> tuple[str, str]:
        """What it printed, and what it said."""
        command: list[object] = [MPIEXEC, "-np", ranks, "--bind-to", "none", PROGRAM, "tune"]
        command += [self.job, "--calibration", self.calibration, "--output", self.tuned]
        launch = self.launch([*command, *options], LEAVE_TOGETHER if expect == REFUSED else {})
        self.assertEqual(launch.wait(), expect, launch.words())
        return launch.out.read_text(), launch.words()

    def refused(self, job: Path, *options: str) -> str:
        return self.run_job(job, RANKS, *options, expect=REFUSED)

    def planned(self, *settings: str) -> str:
        """Why a run would have its settings, or would be refused."""
        command: list[object] = [PROGRAM, "plan", self.job, "--ranks", RANKS, "--json"]
        for setting in settings:
            command += ["--set", setting]
        launch = self.launch(command)
        self.assertEqual(launch.wait(), ALL_DONE, launch.words())
        grid = json.loads(launch.out.read_text())["plans"][0]["parallel"]
        return grid.get("refused") or grid["why"]

    def test_measures_fits_and_serves_goals(self) -> None:
        printed, words = self.tune("--drops", "0,0.9", "--deals", "even,mass", "--json")
        file = json.loads(self.tuned.read_text())
        self.assertEqual(json.loads(printed), file)
        self.assertEqual(file["schema"], "pecia.tuned/4")
        self.assertEqual(file["grid"], {"cp": RANKS, "tp": 1})
        self.assertIn("12 runs of 3 prompts: each attention is timed 2 times, and once it has", words)
        self.assertRegex(words, r"run 1 of 12, dense, for its time: [\d.]+ s; about [\d.]+ m?s left")
        self.assertRegex(words, r"run 6 of 12, drop 0\.90 at 2 levels in 2 parts: [\d.]+ s; about")
        self.assertRegex(words, r"run 8 of 12, drop 0\.90 by mass at 2 levels in 4 parts: [\d.]+ s; about")
        self.assertRegex(words, r"run 9 of 12, drop 0\.90 by mass at 2 levels in 4 parts, for its time")
        self.assertRegex(words, r"run 12 of 12, dense, for its time: [\d.]+ s\n")
        self.assertEqual(len(words.splitlines()), 14, words)  # of runs, and where the file is
        self.assertFalse(self.tuned.with_suffix(".runs").exists())

        self.assertEqual(len(file["samples"]), 9)
        self.assertEqual(file["loss_model"]["held_out"]["samples"], 9)
        self.assertEqual(
            {(each["drop"], each["deal"], each["micro"]) for each in file["samples"]},
            {(0, "even", 1), (0.9, "even", 2), (0.9, "mass", 4)},
        )
        # By layer and head what each drop loses: nothing at first, and all in the end.
        layers = [layer["heads"] for layer in file["token_shares"]]
        self.assertEqual(len(layers), 5)
        for heads in layers[1:-1]:
            for head in heads:
                self.assertGreater(head["spread"], 0)
                self.assertEqual(head["lost"][0], 0)
                self.assertAlmostEqual(head["lost"][-1], 1)
                self.assertEqual(head["lost"], sorted(head["lost"]))
        self.assertGreater(file["facts"]["rates"]["all_to_all_bandwidth"], 0)
        for sample in file["samples"]:
            dense = next(each for each in file["dense"] if each["prompt"] == sample["prompt"])
            self.assertAlmostEqual(sample["loss"], sample["nll"] - dense["nll"], delta=1e-12)
            if sample["drop"] == 0:  # disjoint levels lose nothing then
                self.assertLess(abs(sample["loss"]), 1e-4)
                self.assertEqual(sample["same_answers"], 1)
                self.assertEqual(sample["retrieval"], dense["retrieval"])
            else:
                self.assertGreater(sample["loss_error"], 0)
        self.assertGreater(max(abs(sample["loss"]) for sample in file["samples"]), 1e-6)

        # What the file says makes a plain share and levels, which the report has. Costs that are
        # made up are the same on every machine.
        knots = [{"drop": 0, "loss": 0, "error": 0}, {"drop": 0.9, "loss": 0.08, "error": 0.01}]
        worse = [{"drop": 0, "loss": 0, "error": 0}, {"drop": 0.9, "loss": 0.8, "error": 0.01}]
        even = {"levels": 2, "deal": "even", "knots": knots}
        mass = {"levels": 2, "deal": "mass", "knots": worse}
        file["loss_model"].update(power=0, curves=[even, mass])
        file["time_model"].update(s_per_token=0, s_per_dropping_token=0, s_per_step=0, constant_s=0)
        file["time_model"].update(s_per_pair=1e-6, s_per_byte=0, s_per_near_byte=0)
        self.tuned.write_text(json.dumps(file))
        self.run_job(self.job, RANKS, "--set", "attention.objective={loss: 0.05}")
        report = self.report(self.job)
        attention, why = report["job"]["attention"], report["modes"]["why"]
        self.assertEqual((attention["drop"], attention["levels"]), (0.5, 2))
        self.assertEqual((attention["objective"], attention["pipeline"]), ("off", 1))
        self.assertRegex(
            why,
            r"drop 0\.50 at 2 levels in 1 part by .*tuned\.json, expected to lose 0\.0444 nats per "
            r"token \(up to 0\.0500\) and to retrieve \d+ % of what dense attention does",
        )
        self.assertNotIn("rates of this run's machine", why)
        self.assertIn("in 4 parts", self.planned("attention.pipeline=4"))

        # Where shares of layers and heads lose less than even ones, the run has these.
        file["loss_model"]["curves"] = [{**even, "knots": worse}, {**mass, "knots": knots}]
        self.tuned.write_text(json.dumps(file))
        self.run_job(self.job, RANKS, "--fresh", "--set", "attention.objective={loss: 0.05}")
        report = self.report(self.job)
        self.assertIn("drop 0.50 by mass at 2 levels", report["modes"]["why"])
        shares = report["job"]["attention"]["drop"]["layers"]
        self.assertEqual((len(shares), shares[0], shares[-1]), (5, 0, 0))
        self.assertEqual({len(heads) for heads in shares[1:-1]}, {len(layers[1])})
        self.assertAlmostEqual(report["sparse"]["drop"], 0.5, delta=0.02)
        file["loss_model"]["curves"] = [even, mass]
        self.tuned.write_text(json.dumps(file))
        for objective, drop in (("{loss: 1}", "0.90"), ("{ttft: 1h}", "0.00"), ("off", "0.02")):
            self.assertIn(f"drop {drop} at 2 levels", self.planned(f"attention.objective={objective}"))
        for of in file["dense"]:
            of["retrieval"] = 1
        for sample in file["samples"]:
            sample["retrieval"] = 1 - sample["drop"]
        self.tuned.write_text(json.dumps(file))
        for objective, drop in (("loss: 1, retrieval: 0.8", "0.20"), ("ttft: 1h, retrieval: 1", "0.00")):
            self.assertIn(f"drop {drop} at 2 levels", self.planned(f"attention.objective={{{objective}}}"))

        # A file of a machine whose links are much faster: the run chooses again with its own rates.
        own = {"s_per_byte": file["time_model"]["s_per_byte"]}
        rates = dict(file["facts"]["rates"])
        file["time_model"]["s_per_byte"] = 1e-9
        file["facts"]["rates"]["all_to_all_bandwidth"] *= 1e6
        self.tuned.write_text(json.dumps(file))
        self.run_job(self.job, RANKS, "--fresh", "--set", "attention.objective={loss: 0.05}")
        report = self.report(self.job)
        self.assertRegex(report["modes"]["why"], r"with the rates of this run's machine, expected")
        self.assertGreater(report["job"]["attention"]["pipeline"], 1)  # the link is what takes time
        file["time_model"].update(own)
        file["facts"]["rates"] = rates
        self.tuned.write_text(json.dumps(file))

        too_fast = "attention.objective={ttft: 0.001}"
        for options in ([], ["--validate"]):
            words = self.refused(self.job, "--fresh", "--set", too_fast, *options)
            self.assertRegex(words, r"cannot be met for a prompt of \d+ tokens; the best that can is")
        for settings, why in (
            (["attention.geometry=nested"], r"is for another geometry: disjoint there"),
            (["attention.levels=3"], r"tuned\.json knows 2 levels, and not 3"),
            (["parallel.cp=1", "parallel.dp=2"], r"is for another grid"),
            ([f"model.path={MODEL}"], r"is for another model"),
        ):
            with self.subTest(settings=settings):
                self.assertRegex(self.planned(*settings), why)
        self.tuned.write_text(self.tuned.read_text().replace('"version": "', '"version": "x'))
        self.assertIn("is for another version: x", self.refused(self.job, "--fresh"))

    def test_of_tensor_parallel_ranks(self) -> None:
        by_heads = ["--set", "parallel.cp=1", "--set", f"parallel.tp={RANKS}"]
        self.tune("--drops", "0,0.9", "--deals", "even,mass", "--rounds", "1", *by_heads)
        file = json.loads(self.tuned.read_text())
        self.assertEqual(file["grid"], {"cp": 1, "tp": RANKS})
        losses = {drop: [] for drop in (0, 0.9)}
        for sample in file["samples"]:
            losses[sample["drop"]].append(abs(sample["loss"]))
        self.assertLess(max(losses[0]), 1e-4)
        self.assertGreater(max(losses[0.9]), 1e-4)

        # A time that is made up is the same on every machine.
        file["time_model"].update(s_per_token=0, s_per_pair=1e-6, constant_s=0)
        self.tuned.write_text(json.dumps(file))
        self.run_job(self.job, RANKS, *by_heads, "--set", "attention.objective={loss: 1}")
        report = self.report(self.job)
        self.assertEqual(report["job"]["attention"]["drop"], 0.9)
        sparse = report["sparse"]
        self.assertLess(sparse["attention_pairs"], 0.9 * sparse["dense_attention_pairs"])
        self.assertEqual(sparse["dense_sent_bytes"], 0)
        self.assertEqual(sparse["sent_bytes"], sparse["importance_bytes"])
        # Numbers of the rows, to the other rank, from each of the three layers that say what drops.
        self.assertEqual(sparse["importance_bytes"], RANKS * 3 * 4 * sparse["rows"])
        self.assertRegex(self.planned("attention.objective={loss: 1}"), "is for another grid")

    def test_refuses_before_weights_are_read(self) -> None:
        for options, ranks, why in (
            (["--set", "attention.first_tokens=64"], RANKS, "first_tokens: auto"),
            (["--set", "parallel.cp=1"], 1, r"tune needs two or more ranks"),
            (["--drops", "0,1"], RANKS, r"--drops has 1; a drop is a share from 0 to 0\.95"),
            (["--drops", "0"], RANKS, r"--drops has no share above 0"),
            (["--drops", "0.5", "--deals", "even"], RANKS, r"3 prompts with 1 settings are 3 samples"),
            (["--deals", "mass"], RANKS, r"--deals lacks even"),
            (["--deals", "even,odd"], RANKS, r"--deals has 'odd'; a deal is even, spread or mass"),
            (["--deals", "even,mass", "--set", "attention.geometry=nested"], RANKS, r"use --deals even"),
            (["--set", "attention.pipeline=[4, 2]"], RANKS, r"tune chooses a number for each level"),
            (["--set", "attention.levels=3"], RANKS, r"attention\.levels: 3 is nothing to tune"),
            (["--set", f"model.path={MODEL}"], RANKS, r"the model has 2 layers of attention, and"),
            (["--set", "batch.max_batch_tokens=200"], RANKS, r"chunks of 256 tokens"),
        ):
            with self.subTest(why=why):
                _, words = self.tune(*options, ranks=ranks, expect=REFUSED)
                self.assertRegex(words, why)
        write_shard(self.calibration, random_requests(3, 200, 250, seed=1))
        _, words = self.tune(expect=REFUSED)
        self.assertRegex(
            words, r"request-0 has 2\d\d tokens, and levels need 128 new tokens on each of 2 ranks"
        )
        write_shard(self.calibration, random_requests(3, 300, 380, seed=1))
        _, words = self.tune(expect=REFUSED)
        self.assertRegex(words, r"has 3\d\d tokens, and a question of retrieval needs 384, so that its")
        write_shard(self.calibration, random_requests(1, 400, 500, seed=1))
        _, words = self.tune(expect=REFUSED)
        self.assertIn("texts.h5 has one prompt, and nothing says then what another one loses", words)
        write_shard(self.calibration, random_requests(3, 300, 400, seed=1, every_second_turn=1))
        _, words = self.tune(expect=REFUSED)
        self.assertIn("has 2 turns", words)
        self.assertFalse(self.tuned.exists())


if __name__ == "__main__":
    unittest.main()
