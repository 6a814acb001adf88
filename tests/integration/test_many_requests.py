# SPDX-License-Identifier: Apache-2.0
"""Batches at the ends of the range: a hundred thousand tiny requests, and one that takes all the memory there is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

import numpy as np

from harness import DONE, SOME_FAILED, SOURCE, VOCAB, Request, RunTest

TINY = int(os.environ.get("PECIA_TEST_TINY_REQUESTS", "3000"))
LARGEST_TOKENS = int(os.environ.get("PECIA_TEST_LARGEST_TOKENS", "200"))
KV_MEMORY = os.environ.get("PECIA_TEST_KV_MEMORY", "64MiB")  # auto: what the machine has
LIMIT_S = 7200


def peak_bytes(process: int) -> int:
    """Of a living process; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


class TinyRequests(RunTest):
    """The cost of a request apart from its tokens: two batches, and what the larger one takes more."""

    def take(self, count: int, ranks: int) -> tuple[float, int]:
        """Seconds of the run, and most bytes of a rank, for so many requests of two tokens in and one out."""
        draw = np.random.default_rng(count)
        prompts = draw.integers(3, VOCAB, size=(count, 2)).tolist()
        requests = [Request(f"r{row}", [prompt]) for row, prompt in enumerate(prompts)]
        job = self.write_job(
            requests,
            f"tiny-{count}-{ranks}",
            generation={"max_new_tokens": 1, "ignore_eos": True},
            parallel={"dp": ranks},
            report={"trace": "summary", "progress": "lines"},
        )
        launch = self.start(job, ranks)
        most = 0
        while launch.runs_for(0.2):
            most = max([most, *map(peak_bytes, launch.ranks())])
        self.end(launch, 0)
        found = self.results(job)
        self.assertEqual(len(found.rows(DONE)), count)
        self.assertEqual(found["output_tokens"].tolist(), [1] * count)
        self.check_one_by_one(prompts, found["tokens"], count)
        return self.report(job)["seconds"], most

    def check_one_by_one(self, prompts: list[list[int]], tokens: np.ndarray, count: int) -> None:
        """Equal prompts have equal answers, wherever in the batch they stand."""
        answers: dict[tuple[int, ...], int] = {}
        for prompt, token in zip(prompts, tokens.tolist()):
            self.assertEqual(answers.setdefault(tuple(prompt), token), token, prompt)
        self.assertLess(len(answers), max(count, VOCAB * VOCAB))
        self.assertGreater(len(set(answers.values())), 1)

    def test_each_costs_the_same_however_many_there_are(self) -> None:
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                few, _ = self.take(TINY // 10, ranks)
                many, most = self.take(TINY, ranks)
                each = (many - few) / (TINY - TINY // 10)
                print(
                    f"\n{TINY} requests of 2 + 1 tokens on {ranks} ranks: {many:.2f} s, "
                    f"{1e6 * each:.0f} µs a request, at most {most / 2**20:.0f} MiB a rank",
                    file=sys.stderr,
                )
                # Ten times the requests in a hundred times the time would be quadratic. A busy machine, and the
                # start that the few are charged with, leave room below that.
                self.assertLess(many, 40 * few)


class LargestRequest(RunTest):
    """A model of few weights whose every token takes much memory, so that the cache fills before the time is up."""

    BYTES_OF_LAYER = 2 * 64 * 256 * 4  # keys and values of a token: 64 heads of 256 numbers in fp32

    def make_model(self, layers: int) -> Path:
        model = self.folder / "model"
        shape = {
            "heads": 64,
            "kv-heads": 64,
            "head-dim": 256,
            "hidden": 32,
            "ffn": 32,
            "vocab": VOCAB,
        }
        options = [f"--{name}={size}" for name, size in {**shape, "layers": layers}.items()]
        command = [SOURCE / "scripts/make-bench-model", model, *options]
        subprocess.run(command, check=True, capture_output=True)
        config = json.loads((model / "config.json").read_text())
        config["max_position_embeddings"] = 1 << 30
        (model / "config.json").write_text(json.dumps(config))
        return model

    def available_bytes(self) -> int:
        if KV_MEMORY != "auto":
            return int(KV_MEMORY.removesuffix("MiB")) << 20
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(
            int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
        )

    def test_one_that_fills_the_memory_is_done_and_a_token_more_fails_alone(self) -> None:
        layers = max(1, self.available_bytes() // (self.BYTES_OF_LAYER * LARGEST_TOKENS))
        model = self.make_model(layers)
        prompt = np.random.default_rng(1).integers(3, VOCAB, size=100 * LARGEST_TOKENS).tolist()
        sections = {
            "model": {"path": str(model)},
            "kv": {"dtype": "fp32", "memory": KV_MEMORY},
            "generation": {"max_new_tokens": 4, "ignore_eos": True, "logprobs": 1},
        }
        too_long = [Request("beyond", [prompt]), Request("small", [prompt[:5]])]
        job = self.write_job(too_long, "beyond", **sections)
        self.end_of(job, SOME_FAILED)
        self.assertEqual(self.results(job).rows(DONE), [1])
        room = self.report(job)["modes"]["kv_tokens_per_rank"]
        self.assertIn(f"there are {room}".encode(), self.results(job)["error"][0])

        sections["kv"]["memory"] = room * layers * self.BYTES_OF_LAYER
        batch = [
            Request("a token more", [prompt[: room - 3]]),
            Request("largest", [prompt[: room - 4]]),
            Request("small", [prompt[:5]]),
        ]
        job = self.write_job(batch, "largest", **sections)
        seconds = self.end_of(job, SOME_FAILED)
        found = self.results(job)
        self.assertEqual(found.rows(DONE), [1, 2], found["error"].tolist())
        self.assertTrue(np.all(np.isfinite(found.slots(1, "token_logprob"))))
        print(
            f"\na request of {room} tokens in {room * layers * self.BYTES_OF_LAYER / 2**30:.2f} GiB of cache: "
            f"{seconds:.1f} s",
            file=sys.stderr,
        )

    def end_of(self, job: Path, code: int) -> float:
        launch = self.start(job, 1, environment={"OMP_NUM_THREADS": "2"})
        self.assertEqual(launch.wait(LIMIT_S), code, launch.words())
        return self.report(job)["seconds"]


if __name__ == "__main__":
    unittest.main()
