# SPDX-License-Identifier: Apache-2.0
"""A request whose activations overflow: it fails, naming the layer, and its neighbours do not notice."""

from __future__ import annotations

import json
import shutil
import struct
import unittest
from pathlib import Path
from typing import Any

import numpy as np

from harness import DONE, FAILED, MODEL, SOME_FAILED, VOCAB, Request, RunTest

BAD_TOKEN = VOCAB - 1
BAD_LAYER = 0


class BrokenActivationsTest(RunTest):
    def make_model(self) -> Path:
        """The FFN of one layer overflows for one token, which is never generated: dimension 0 of the hidden
        states, to which no layer adds anything, tells it from the others, and gate and up see nothing else."""
        folder = self.folder / "model"
        shutil.copytree(MODEL, folder)
        path = folder / "model.safetensors"
        data = bytearray(path.read_bytes())
        header_end = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:header_end])

        def tensor(name: str) -> np.ndarray:
            begin, end = (header_end + at for at in header[name]["data_offsets"])
            view = np.frombuffer(data, dtype=np.float32, count=(end - begin) // 4, offset=begin)
            return view.reshape(header[name]["shape"])

        head = tensor("lm_head.weight")
        head[BAD_TOKEN] = head[BAD_TOKEN - 1]  # of equal logits the lowest token is taken
        embedding = tensor("model.embed_tokens.weight")
        embedding[:, 0] = 0
        embedding[BAD_TOKEN, 0] = 4
        for name in header:
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                tensor(name)[0] = 0
        for projection in ("gate_proj", "up_proj"):
            row = tensor(f"model.layers.{BAD_LAYER}.mlp.{projection}.weight")[0]
            row[:] = 0
            row[0] = 1e30
        path.write_bytes(data)
        return folder

    def run_with(self, name: str, ranks: int, last: int, **parallel: Any) -> Any:
        draw = np.random.default_rng(5)
        prompts = [draw.integers(3, VOCAB - 1, size=size).tolist() for size in (40, 7, 23)]
        prompts[1][-1] = last
        job = self.write_job(
            [Request(f"request-{index}", [prompt]) for index, prompt in enumerate(prompts)],
            name,
            model={"path": str(self.folder / "model")},
            generation={"max_new_tokens": 6, "ignore_eos": True, "logprobs": 1},
            batch={"max_sequences": 3, "max_batch_tokens": 128},
            parallel=parallel,
        )
        expect = SOME_FAILED if last == BAD_TOKEN else 0
        self.run_job(job, ranks, expect=expect)
        return self.results(job)

    def test_names_the_layer_and_harms_no_other_request(self) -> None:
        self.make_model()
        good = self.run_with("good", 1, last=3)
        self.assertEqual(good.rows(DONE), [0, 1, 2])
        for ranks, parallel in ((1, {}), (2, {"cp": 2}), (2, {"tp": 2, "prefill": "sp_tp"})):
            with self.subTest(ranks=ranks, parallel=parallel):
                name = f"bad-{ranks}-" + "-".join(parallel)
                found = self.run_with(name, ranks, BAD_TOKEN, **parallel)
                self.assertEqual(found.rows(FAILED), [1])
                self.assertIn(
                    f"came from the FFN of layer {BAD_LAYER}:", found["error"][1].decode()
                )
                self.assert_same_answers(found, good, [0, 2])

    def test_fails_alone_where_it_gives_a_vector_or_a_score(self) -> None:
        self.make_model()
        draw = np.random.default_rng(5)
        prompts = [draw.integers(3, VOCAB - 1, size=size).tolist() for size in (40, 7, 23)]
        requests = [Request(f"request-{index}", [prompt]) for index, prompt in enumerate(prompts)]
        sections: dict[str, Any] = {
            "model": {"path": str(self.folder / "model")},
            "vector": {"pool": "mean"},
        }
        for produce, data in (("vector", "vectors"), ("score", "scores")):
            prompts[1][3] = 5
            good = self.write_job(requests, f"good-{produce}", produce=produce, **sections)
            self.run_job(good, 1)
            prompts[1][3] = BAD_TOKEN
            wanted = self.results(good)[data]
            for ranks, parallel in ((1, {}), (2, {"cp": 2}), (2, {"tp": 2, "prefill": "sp_tp"})):
                with self.subTest(produce, ranks=ranks, parallel=parallel):
                    name = f"bad-{produce}-{ranks}-" + "-".join(parallel)
                    job = self.write_job(
                        requests, name, produce=produce, parallel=parallel, **sections
                    )
                    self.run_job(job, ranks, expect=SOME_FAILED)
                    found = self.results(job)
                    self.assertEqual(found.rows(FAILED), [1])
                    words = found["error"][1].decode()
                    self.assertIn(f"came from the FFN of layer {BAD_LAYER}:", words)
                    np.testing.assert_allclose(
                        found[data][[0, 2]], wanted[[0, 2]], rtol=0, atol=1e-3
                    )


if __name__ == "__main__":
    unittest.main()
