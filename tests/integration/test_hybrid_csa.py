# SPDX-License-Identifier: Apache-2.0
"""Runs of models with recurrent layers whose prompts are attended by levels of the ranks."""

from __future__ import annotations

import json
import shutil
import struct
import unittest
from pathlib import Path
from typing import Any

from harness import DONE, SOURCE, random_requests
from test_hybrids import FP32, HYBRIDS, SECTIONS, HybridRuns


class SparseHybridTest(HybridRuns):
    """Levels concern the layers of attention; states go through all rows."""

    def sparse_job(self, model: Path, name: str, **sections: Any) -> Path:
        generation = {**SECTIONS["generation"], "max_new_tokens": 6}
        batch = {"max_sequences": 4, "max_batch_tokens": 640}
        requests = random_requests(4, 530, 900, seed=6, every_second_turn=2)
        of_model = {"path": str(model), "compute": "fp32"}
        sections = {"generation": generation, "batch": batch, "kv": FP32, **sections}
        return self.write_job(requests, f"{model.name}-{name}", model=of_model, **sections)

    def test_answers_are_those_of_one_rank(self) -> None:
        for hybrid in HYBRIDS:
            model = SOURCE / "tests" / "goldens" / hybrid
            alone = self.sparse_job(model, "alone")
            self.run_job(alone, 1)
            wanted = self.results(alone)
            for ranks, parallel in (
                (2, {"cp": 2}),
                (3, {"sp": 3}),
                (4, {"cp": 2, "tp": 2}),
                (2, {"tp": 2, "prefill": "tp"}),
                (2, {"tp": 2, "prefill": "ulysses"}),
                (4, {"dp": 2, "cp": 2}),
            ):
                with self.subTest(hybrid=hybrid, ranks=ranks, parallel=parallel):
                    attention = {"sparse": "csa", "drop": 0.0}
                    job = self.sparse_job(model, "csa", parallel=parallel, attention=attention)
                    self.run_job(job, ranks, "--fresh")
                    found = self.results(job)
                    self.assert_same_answers(found, wanted, wanted.rows(DONE))
                    self.assertTrue(any(mode.endswith(b"+csa") for mode in found["mode"]), set(found["mode"]))

    def repeated(self, times: int) -> Path:
        """A model that has the layers of a golden one several times."""
        golden, folder = SOURCE / "tests" / "goldens" / HYBRIDS[2], self.folder / "repeated"
        shutil.copytree(golden, folder)
        data = (golden / "model.safetensors").read_bytes()
        end = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:end])
        config = json.loads((folder / "config.json").read_text())
        layers, begin = config["num_hidden_layers"], "model.layers."
        for name, tensor in list(header.items()):
            if name.startswith(begin):
                number, rest = name.removeprefix(begin).split(".", 1)
                for time in range(1, times):
                    header[f"{begin}{int(number) + time * layers}.{rest}"] = tensor
        tensors, content = {}, bytearray()
        for name, tensor in header.items():  # whose bytes may not overlap
            if name == "__metadata__":
                continue
            first, last = tensor["data_offsets"]
            offsets = [len(content), len(content) + last - first]
            content += data[end + first : end + last]
            tensors[name] = {**tensor, "data_offsets": offsets}
        text = json.dumps(tensors).encode()
        text += b" " * (-len(text) % 8)
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content)
        config.update(num_hidden_layers=times * layers, layer_types=times * config["layer_types"])
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def test_layers_of_attention_drop_between_the_first_and_the_last(self) -> None:
        model = self.repeated(3)
        for ranks, parallel in ((2, {"cp": 2}), (2, {"tp": 2})):
            answers = []
            for drop in (0.0, 0.5, 0.5):
                attention = {"sparse": "csa", "drop": drop}
                job = self.sparse_job(model, f"drop-{drop}", parallel=parallel, attention=attention)
                self.run_job(job, ranks, "--fresh")
                answers.append(self.results(job)["token_logprob"].tobytes())
            self.assertNotEqual(answers[0], answers[1])
            self.assertEqual(answers[1], answers[2])
            shares = {}
            for run in self.report(job)["sparse"]["layers"]:
                for layer in range(run["first"], run["last"] + 1):
                    shares[layer] = run["kept_share"]
            attended = [layer for layer, share in shares.items() if share is not None]
            self.assertEqual(attended, [2, 6, 10])
            self.assertEqual(shares[2], shares[10])
            self.assertEqual(shares[2][-1], 1)
            self.assertLess(shares[6][-1], 1)


if __name__ == "__main__":
    unittest.main()
