# SPDX-License-Identifier: Apache-2.0
"""Whole runs that give vectors and scores: from JSONL to JSONL, over kills, on every grid; what fails fails alone."""

from __future__ import annotations

import base64
import json
import shutil
import signal
import subprocess
import sys
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from safetensors.numpy import load_file, save_file

from harness import (
    DONE,
    DRAINED,
    MODEL,
    PROGRAM,
    REFUSED,
    SOME_FAILED,
    SOURCE,
    VOCAB,
    Request,
    Results,
    RunTest,
    random_requests,
    wait_for,
)
from word_model import make_word_model, some_words

VECTOR, SCORE, RERANK = 1, 2, 3
WIDTH: int = json.loads((MODEL / "config.json").read_text())["hidden_size"]
URL = "/v1/embeddings"


def script(name: str, *arguments: object) -> str:
    command = [sys.executable, "-m", f"pecia_tools.{name}.main", *map(str, arguments)]
    found = subprocess.run(
        command, cwd=SOURCE / "scripts", capture_output=True, text=True, check=False
    )
    if found.returncode not in (0, 3):
        raise AssertionError(found.stderr)
    return found.stdout


def add_products(
    path: Path, produce: Sequence[int], continuations: Sequence[Sequence[Sequence[int]]] = ()
) -> None:
    """To a shard, by turn."""
    with h5py.File(path, "a") as file:
        file["produce"] = np.array(produce, dtype=np.uint8)
        if not continuations:
            return
        rows = [row for turn in continuations for row in turn]
        file["continuation_offsets"] = np.cumsum([0, *map(len, continuations)])
        file["continuation_lengths"] = np.array([len(row) for row in rows], dtype=np.int32)
        file["continuation_tokens"] = np.concatenate(rows).astype(np.int32)


class JsonlTest(RunTest):
    def test_openais_form_comes_back_in_openais_form(self) -> None:
        model = make_word_model(self.folder / "words")
        lines: list[dict[str, Any]] = [
            {"custom_id": "text", "method": "POST", "url": URL, "body": {"input": some_words(9)}},
            {"custom_id": "tokens", "url": URL, "body": {"input": [5, 6, 7, 8]}},
            {
                "custom_id": "bytes",
                "url": URL,
                "body": {"input": some_words(9), "encoding_format": "base64", "dimensions": 16},
            },
            {"custom_id": "answer", "url": "/v1/completions", "body": {"prompt": some_words(3)}},
        ]
        batch = self.folder / "batch.jsonl"
        batch.write_text("".join(json.dumps(line) + "\n" for line in lines))
        shard = self.folder / "job.h5"
        script("pack", "--model", model, "--output", shard, "--max-new-tokens", 4, batch)
        job = self.write_job(model={"path": str(model)}, generation={"ignore_eos": True})
        self.run_job(job, 2)
        out = script("text", self.output(job), "--jsonl")
        found = {
            line["custom_id"]: line["response"]["body"]
            for line in map(json.loads, out.splitlines())
        }
        self.assertEqual(list(found), [line["custom_id"] for line in lines])
        whole = np.array(found["text"]["data"][0]["embedding"])
        self.assertEqual(whole.shape, (WIDTH,))
        self.assertAlmostEqual(float(np.linalg.norm(whole)), 1, places=5)
        self.assertEqual(found["text"]["usage"]["prompt_tokens"], 9)
        self.assertEqual(found["text"]["object"], "list")
        cut = np.frombuffer(base64.b64decode(found["bytes"]["data"][0]["embedding"]), "<f4")
        wanted = whole[:16] / np.linalg.norm(whole[:16])
        np.testing.assert_allclose(cut, wanted, atol=1e-5)
        self.assertEqual(found["answer"]["usage"]["completion_tokens"], 4)
        report = self.report(job)
        self.assertEqual(report["counts"]["vectors"], 3)


class ProductsTest(RunTest):
    """Vectors, scores of prompts and of continuations, and pairs, among answers."""

    def job_of(self, name: str = "job", count: int = 24, **sections: Any) -> Path:
        requests = random_requests(count, 2, 60, seed=3)
        sections.setdefault("generation", {"max_new_tokens": 3, "ignore_eos": True})
        job = self.write_job(requests, name, **sections)
        kinds = [index % 4 for index in range(count)]
        draw = np.random.default_rng(1)
        continuations = [
            [
                draw.integers(3, VOCAB, size=n).tolist()
                for n in ((1, 5, 2) if kind == SCORE else (1, 1))
            ]
            if kind == RERANK or (kind == SCORE and index % 8 < 4)
            else []
            for index, kind in enumerate(kinds)
        ]
        add_products(self.folder / f"{name}.h5", kinds, continuations)
        return job

    def assert_same_products(self, found: Results, wanted: Results) -> None:
        """fp32 sums in another order, as in assert_same_answers."""
        self.assert_same_answers(found, wanted, found.rows(DONE))
        for name, tolerance in (
            ("vectors", 1e-5),
            ("scores", 1e-2),
            ("score_token_logprob", 1e-4),
        ):
            np.testing.assert_allclose(found[name], wanted[name], rtol=0, atol=tolerance)

    def alone(self) -> Results:
        def compute() -> Results:
            job = self.job_of("alone")
            self.run_job(job, 0)
            return self.results(job)

        return self.once("alone", compute)

    def test_grids_give_what_one_rank_gives(self) -> None:
        wanted = self.alone()
        self.assertEqual(len(wanted.rows(DONE)), 24)
        for number, parallel in enumerate(
            (
                {"cp": 2, "ring": "pass_kv"},
                {"cp": 2, "ring": "pass_q"},
                {"sp": 2, "tp": 1},
                {"sp": 1, "tp": 2},
                {"cp": "elastic"},
                {"dp": 2},
                {"cp": 2, "phases": "apart"},
            )
        ):
            with self.subTest(parallel):
                job = self.job_of(f"grid-{number}", parallel=parallel)
                self.run_job(job, 2)
                self.assert_same_products(self.results(job), wanted)

    def test_half_precision(self) -> None:
        job = self.job_of("half", vector={"dtype": "fp16"})
        self.run_job(job, 1)
        found = self.results(job)["vectors"]
        self.assertEqual(found.dtype, np.float16)
        np.testing.assert_allclose(found, self.alone()["vectors"], rtol=0, atol=2**-11)

    def test_a_finished_vector_is_never_computed_twice(self) -> None:
        """Killed at any moment, the next start goes on, also where several replicas write journals."""
        for ranks, parallel in ((1, {}), (2, {"dp": 2})):
            with self.subTest(ranks):
                job = self.job_of(
                    f"killed-{ranks}", 400, parallel=parallel, batch={"max_sequences": 2}
                )
                launch = self.start(job, ranks)
                wait_for("20 rows", lambda job=job: self.done(job) >= 20)
                launch.kill()
                before = self.results(job)
                done = before.rows(DONE)
                words = self.run_job(job, ranks)
                after = self.results(job)
                self.assertEqual(len(after.rows(DONE)), 400, words)
                for row in done:
                    for name in ("vector", "score", "score_token"):
                        data = {"vector": "vectors", "score": "scores"}.get(
                            name, "score_token_logprob"
                        )
                        begin, end = before[f"{name}_offsets"][row : row + 2]
                        self.assertEqual(
                            before[data][begin:end].tobytes(), after[data][begin:end].tobytes()
                        )
                    self.assertEqual(before["ttft_s"][row], after["ttft_s"][row])

    def test_a_drained_run_goes_on(self) -> None:
        """Of prompts that were under way, means and scores of their own need all outputs again; no keys are kept."""
        requests = random_requests(40, 3800, 4000, seed=2)
        kinds = [(VECTOR, SCORE)[index % 2] for index in range(40)]
        sections: dict[str, Any] = {
            "vector": {"pool": "mean"},
            "batch": {"max_sequences": 2, "max_batch_tokens": 512, "order": "fcfs"},
            "generation": {"max_new_tokens": 1},
        }
        wanted = self.write_job(requests, "whole", **sections)
        add_products(self.folder / "whole.h5", kinds)
        self.run_job(wanted, 2)
        job = self.write_job(requests, "drained", **sections)
        add_products(self.folder / "drained.h5", kinds)
        launch = self.start(job, 2, together=True)
        wait_for("3 rows", lambda: self.done(job) >= 3)
        launch.signal_ranks(signal.SIGTERM)
        self.end(launch, DRAINED)
        self.assertLess(self.done(job), 40)
        self.run_job(job, 2)
        self.assert_same_products(self.results(job), self.results(wanted))

    def test_a_bad_request_fails_alone(self) -> None:
        long = [5] * (
            json.loads((MODEL / "config.json").read_text())["max_position_embeddings"] + 1
        )
        requests = [
            Request("good", [[5, 6, 7]]),
            Request("long", [long]),
            Request("bad-token", [[5, VOCAB]]),
            Request("one-token", [[5]]),
            Request("bad-continuation", [[5, 6]]),
            Request("no-pair", [[5, 6]]),
            Request("last", [[8, 9]]),
        ]
        job = self.write_job(requests)
        add_products(
            self.folder / "job.h5",
            [VECTOR, VECTOR, VECTOR, SCORE, SCORE, RERANK, VECTOR],
            [[], [], [], [], [[5], [VOCAB]], [[5]], []],
        )
        self.run_job(job, 2, expect=SOME_FAILED)
        results = self.results(job)
        self.assertEqual(results.rows(DONE), [0, 6])
        for row, part in (
            (1, "prompt tokens, the model's length is"),
            (2, "token 1 of the turn"),
            (3, "there is no prediction"),
            (4, "of a continuation token 0"),
            (5, "two continuations or more"),
        ):
            self.assertIn(part, results["error"][row].decode())

    def test_spans_are_of_the_shard(self) -> None:
        prompt = list(range(5, 25))
        requests = [Request("a", [prompt]), Request("b", [prompt]), Request("c", [prompt])]
        job = self.write_job(requests, produce="vector", vector={"pool": "spans"})
        with h5py.File(self.folder / "job.h5", "a") as file:
            file["span_offsets"] = np.array([0, 2, 3, 4])
            file["spans"] = np.array([[0, 20], [19, 20], [5, 21], [3, 9]])
        self.run_job(job, 1, expect=SOME_FAILED)
        results = self.results(job)
        self.assertEqual(results.rows(DONE), [0, 2])
        self.assertIn("/spans has [5, 21), the turn has 20 tokens", results["error"][1].decode())
        whole = self.write_job(requests[:1], "mean", produce="vector", vector={"pool": "mean"})
        self.run_job(whole, 1)
        # Products of other rows in the same pass may sum in another order.
        np.testing.assert_allclose(
            results["vectors"][0], self.results(whole)["vectors"][0], rtol=0, atol=1e-5
        )

    def test_a_plan_knows_that_they_have_no_answers(self) -> None:
        end_s = {}
        for produce in ("vector", "text"):
            job = self.write_job(random_requests(8, 20, 40, seed=1), produce, produce=produce)
            plan = [PROGRAM, "plan", job, "--cluster", "h100-gti", "--ranks", "1", "--json"]
            out = subprocess.run(plan, capture_output=True, text=True, check=True).stdout
            found = json.loads(out)
            end_s[produce] = found["plans"][0]["end_s"]
            self.assertEqual(found["batch"]["new_tokens"], 0 if produce == "vector" else 8 * 256)
        self.assertLess(end_s["vector"], end_s["text"])

    def test_validate_and_shapes(self) -> None:
        job = self.write_job(
            random_requests(2, 5, 9, seed=1), produce="vector", generation={"choice": ["a"]}
        )
        self.assertIn("produce: vector with schema", self.run_job(job, 0, expect=REFUSED))


class WithoutHeadTest(RunTest):
    """A model for embedding as Qwen3-Embedding is stored: no lm_head, names without 'model.'."""

    def model(self) -> Path:
        folder = self.folder / "headless"
        shutil.copytree(MODEL, folder)
        tensors = load_file(folder / "model.safetensors")
        del tensors["lm_head.weight"]
        save_file(
            {name.removeprefix("model."): tensor for name, tensor in tensors.items()},
            folder / "model.safetensors",
        )
        return folder

    def test_gives_vectors_and_nothing_else(self) -> None:
        requests = random_requests(3, 5, 20, seed=1)
        model = {"path": str(self.model())}
        job = self.write_job(requests, model=model, produce="vector")
        self.run_job(job, 2)
        whole = self.write_job(requests, "whole", produce="vector")
        self.run_job(whole, 2)
        np.testing.assert_array_equal(self.results(job)["vectors"], self.results(whole)["vectors"])
        for name, produce in (("text", "text"), ("score", "score")):
            other = self.write_job(requests, name, model=model, produce=produce)
            words = self.run_job(other, 2, expect=REFUSED)
            self.assertIn("tensor 'lm_head.weight' is missing", words)


if __name__ == "__main__":
    unittest.main()
