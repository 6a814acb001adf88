# SPDX-License-Identifier: Apache-2.0
"""vectors_process FOLDER OPTIONS: means of length 1 by sentence-transformers, in a process of its own.

Runs with the Python of build/peers, where this project's packages are not. All texts are encoded once for each batch
size; the first batch is encoded once before. A JSON line for each batch size is appended to --json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="vectors_process", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--texts", type=Path, required=True, help="a JSON list")
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--batches", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True, help="the vectors, as .npy")
    parser.add_argument("--json", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    import sentence_transformers
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer, models

    options = parse()
    torch.set_num_threads(options.threads)
    # A model that has a chat template would see each text as a message, with the template's tokens around it.
    text_alone = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    transformer = models.Transformer(
        str(options.model),
        model_kwargs={"dtype": getattr(torch, options.dtype), "attn_implementation": "sdpa"},
        modality_config=text_alone,
        module_output_name="token_embeddings",
    )
    if transformer.tokenizer.pad_token is None:
        transformer.tokenizer.pad_token = transformer.tokenizer.eos_token
    pooling = models.Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
    model = SentenceTransformer(modules=[transformer, pooling, models.Normalize()], device="cpu")
    texts = json.loads(options.texts.read_text("utf-8"))
    versions = {
        "sentence_transformers": sentence_transformers.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    for batch in map(int, options.batches.split(",")):
        model.encode(texts[:batch], batch_size=batch)
        begun = time.perf_counter()
        vectors = model.encode(texts, batch_size=batch, show_progress_bar=False)
        seconds = time.perf_counter() - begun
        line = {"batch": batch, "seconds": seconds, "versions": versions}
        with options.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        np.save(options.output, np.asarray(vectors, dtype=np.float32))


if __name__ == "__main__":
    main()
