# SPDX-License-Identifier: Apache-2.0
"""Prompts longer than the model, and answers without an end: the run does its best and says what it left out."""

from __future__ import annotations

import json
import shutil
import subprocess
import unittest
from pathlib import Path
from typing import Any

from harness import (
    DONE,
    FAILED,
    MODEL,
    PROGRAM,
    SOME_FAILED,
    Request,
    RunTest,
    random_requests,
)

LENGTH = 512  # of the model here
ASKED = 8  # max_new_tokens
CUT = [
    "1 prompt truncated",
    "4 answers cut at max_new_tokens",
    "1 answer cut at the model's length",
]
COUNTS = {
    "truncated_turns": 1,
    "truncated_tokens": 3054 - (LENGTH - ASKED),
    "cut_by_length": 5,
    "cut_by_model_length": 1,
}


class CutToFitTest(RunTest):
    def setUp(self) -> None:
        super().setUp()
        self.model = self.folder / "model"
        shutil.copytree(MODEL, self.model, ignore=shutil.ignore_patterns("golden.json"))
        config = json.loads((self.model / "config.json").read_text())
        config["max_position_embeddings"] = LENGTH
        (self.model / "config.json").write_text(json.dumps(config))
        long, short, first = (random_requests(1, n, n, seed=n)[0].turns[0] for n in (3054, 20, 464))
        # 464 + 8, 12 + 8 and 15 leave 5 positions for the last answer.
        talk = Request("talk", [first, short[:12], short[:15]])
        self.requests = [Request("long", [long]), Request("short", [short]), talk]

    def job(self, **limits: Any) -> Path:
        generation = {"max_new_tokens": ASKED, "ignore_eos": True}
        model = {"path": str(self.model)}
        return self.write_job(self.requests, model=model, generation=generation, limits=limits)

    def pecia(self, *arguments: object) -> str:
        command = [str(argument) for argument in (PROGRAM, *arguments)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return ended.stdout

    def test_everything_says_what_was_cut(self) -> None:
        job = self.job(over_length="truncate_middle")
        plan = self.pecia("plan", job)
        self.assertIn("longest prompt: 3054 tokens (long), 596 % of the model's length", plan)
        self.assertIn("truncate_middle will leave out 2550 tokens", plan)

        words = self.run_job(job, 1)
        self.assertIn(" · " + ", ".join(CUT) + " · ", words)
        found = self.results(job)
        self.assertEqual(found["state"].tolist(), [DONE] * 5)
        self.assertEqual(found["truncated_tokens"].tolist(), [2550, 0, 0, 0, 0])
        self.assertEqual(found["truncated_tokens"].dtype, "int32")
        self.assertEqual(found["prompt_tokens"].tolist(), [504, 20, 464, 12, 15])
        self.assertEqual(found["output_tokens"].tolist(), [8, 8, 8, 8, 5])
        counts = self.report(job)["counts"]
        self.assertEqual({name: counts[name] for name in COUNTS}, COUNTS)

        for path in (self.output(job), self.output(job) / "results.h5"):
            text = self.pecia("inspect", path)
            self.assertIn("1 prompt truncated by limits.over_length, 2550 tokens left out:\n", text)
            self.assertIn("    long: 2550 of 3054 tokens left out\n", text)
            for cut in CUT[1:]:
                self.assertIn(f"  {cut}\n", text)
            seen = json.loads(self.pecia("inspect", path, "--json"))
            seen = seen.get("results", seen)
            self.assertEqual({name: seen[name] for name in COUNTS}, COUNTS)
            cut = {"prompt_tokens": 504, "truncated_tokens": 2550}
            self.assertEqual(seen["truncated"], [{"request_id": "long", "turn": 0, **cut}])

    def test_without_leave_to_cut_the_prompt_fails(self) -> None:
        job = self.job(over_length="fail")
        self.assertIn(
            "too long: 1 prompt; limits.over_length: fail will fail it", self.pecia("plan", job)
        )
        self.run_job(job, 1, expect=SOME_FAILED)
        found = self.results(job)
        self.assertEqual(found["state"].tolist(), [FAILED, *[DONE] * 4])
        self.assertEqual(found["truncated_tokens"].tolist(), [0] * 5)
        text = self.pecia("inspect", self.output(job))
        self.assertIn("  1 failed:\n    long: 3054 prompt tokens, the model's length is 512", text)
        self.assertNotIn("truncated", text)
        seen = json.loads(self.pecia("inspect", self.output(job), "--json"))["results"]
        self.assertEqual([turn["request_id"] for turn in seen["failed_turns"]], ["long"])

    def test_a_plan_counts_as_the_run_does(self) -> None:
        for dtype in ("auto", "int8", "int4"):
            with self.subTest(dtype):
                model = {"path": str(self.model), "dtype": dtype}
                limits = {"over_length": "truncate_left"}
                sections = {"model": model, "limits": limits, "generation": {"max_new_tokens": 2}}
                job = self.write_job(self.requests, name=dtype, **sections)
                plan = json.loads(self.pecia("plan", job, "--json"))
                self.run_job(job, 1)
                modes = self.report(job)["modes"]
                kv = plan["kv"]["bytes_per_token"]
                memory = plan["plans"][0]["memory_bytes_per_rank"]
                self.assertEqual(plan["kv"]["dtype"], modes["kv_dtype"])
                self.assertEqual(memory["kv"], modes["kv_tokens_per_rank"] * kv)
                # Tensors are padded to 256 bytes each, which shows in so small a model; those of
                # the file that are used where they are mapped are not.
                resident = modes["weight_bytes"]
                self.assertAlmostEqual(memory["weights"], resident, delta=0.1 * resident)
                self.assertEqual(plan["plans"][0]["parallel"]["mode"], modes["mode"])
                self.assertGreater(memory["work"], 0)
                sent = plan["plans"][0]["sent_bytes_per_rank"]
                self.assertEqual((sent["prefill_pass"], sent["decode_step"]), (0, 0))
                self.assertEqual(sent["decode_sequences"], 3)

    def test_a_plan_plays_the_batch_of_the_job_or_of_a_shard(self) -> None:
        requests = self.requests[1:]  # those that fit
        generation = {"max_new_tokens": ASKED}
        job = self.write_job(requests, model={"path": str(self.model)}, generation=generation)
        on_cluster = ("--cluster", "h100-gtt", "--ranks", "1,2", "--json")
        own = json.loads(self.pecia("plan", job, *on_cluster))
        self.assertEqual(own["batch"]["requests"], 2)
        self.assertEqual(own["batch"]["prompt_tokens"], 20 + 464 + 12 + 15)
        self.assertEqual([plan["refused_turns"] for plan in own["plans"]], [0] * len(own["plans"]))
        self.assertEqual({plan["ranks"] for plan in own["plans"]}, {1, 2})
        shared = json.loads(self.pecia("plan", job, "--requests", job.with_suffix(".h5"), *on_cluster))
        self.assertEqual(shared["plans"], own["plans"])


if __name__ == "__main__":
    unittest.main()
