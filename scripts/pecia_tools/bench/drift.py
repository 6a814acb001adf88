# SPDX-License-Identifier: Apache-2.0
"""How far `pecia run` drifts from float64 over a long text, with hybrids, whose states go from token to token. The
text is random tokens, and what is compared is the log-probability of each. The reference is that of hybrid_reference:
minutes for 100,000 tokens, kept in models for the next call. Without --model there are two small ones: a gated delta
net as in Qwen3.5, and Mamba-2 as in Granite 4.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from ..model_folder import read_json
from .common import (
    ROOT,
    Line,
    Work,
    bench_model,
    bench_parser,
    on_this_machine,
    positive,
    show,
    write_prompts,
)
from .hybrid_reference import log_probabilities
from .predictions import read_predictions

PARTS = 10  # of the text, each of which has a row
SHAPE = {"layers": 4, "hidden": 64, "heads": 2, "kv_heads": 1, "head_dim": 32, "ffn": 128, "vocab": 512}
MODELS = {"drift-delta-net": {"delta_net": "2:4:32"}, "drift-mamba": {"mamba": "4:32:32:1"}}
HEADS = ("model", "tokens", "mean difference", "mean of sizes", "largest")


def text_of(model: Path, count: int, seed: int) -> np.ndarray:
    vocab = read_json(model / "config.json")["vocab_size"]
    return np.random.default_rng(seed).integers(0, vocab, count, dtype=np.int32)


def reference_of(work: Work, model: Path, tokens: np.ndarray) -> np.ndarray:
    """Kept by what it was made of."""
    made_of = hashlib.sha256((model / "config.json").read_bytes() + tokens.tobytes())
    for file in sorted(model.glob("*.safetensors")):
        made_of.update(file.read_bytes())
    kept = ROOT / "models" / f"{model.name}-float64-{made_of.hexdigest()[:16]}.npy"
    if not kept.is_file():
        found = log_probabilities(model, tokens, lambda words: work.note(f"{model.name} in float64: {words}"))
        np.save(kept, found)
    return np.load(kept)


def measured(work: Work, model: Path, tokens: np.ndarray, ranks: int, settings: list[str]) -> np.ndarray:
    """Log-probabilities of a run."""
    prompts, output = work.folder / f"{model.name}.h5", work.folder / model.name
    write_prompts(prompts, tokens, [len(tokens)], max_new_tokens=np.zeros(1, np.int32))
    job = work.job(
        model.name,
        model={"path": str(model.resolve()), "compute": "fp32"},
        input=[str(prompts)],
        generation={"prompt_logprobs": 1},
        report={"trace": "off", "progress": "off"},
    )
    work.run(ranks, job, [*settings, f"output={output}"])
    return read_predictions(output).logprobs


def figures(differences: np.ndarray) -> dict[str, float]:
    sizes = np.abs(differences)
    return {
        "mean_difference": float(differences.mean()),
        "mean_size": float(sizes.mean()),
        "largest": float(sizes.max()),
    }


def rows_of(line: Line) -> list[list[str]]:
    return [
        [
            line["model"] if part["first"] == 1 else "",
            f"{part['first']}–{part['last']}",
            f"{part['mean_difference']:+.2e}",
            f"{part['mean_size']:.2e}",
            f"{part['largest']:.2e}",
        ]
        for part in line["parts"]
    ]


def line_of(model: Path, differences: np.ndarray, about: dict[str, Any]) -> Line:
    """Of the whole text and of its parts, whose tokens are counted from 1; the first one is not predicted."""
    ends = np.linspace(0, len(differences), PARTS + 1).astype(int)
    parts = [
        {"first": int(begin) + 1, "last": int(end), **figures(differences[begin:end])}
        for begin, end in zip(ends[:-1], ends[1:])
    ]
    return {"bench": "bench_drift", "model": model.name, **about, **figures(differences), "parts": parts}


def main(arguments: list[str]) -> int:
    parser = bench_parser("drift", __doc__, "--tokens 20000 --ranks 2 --set parallel.cp=2", rounds=0)
    parser.add_argument("--model", type=Path, help="a small one of the families of hybrid_reference")
    parser.add_argument("--tokens", type=positive, default=100_000, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the text")
    parser.add_argument("--ranks", type=positive, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as `pecia run` has it")
    options = parser.parse_args(arguments)
    work = Work("drift", options.json)
    models = [options.model] if options.model else [bench_model(name, **SHAPE, **own) for name, own in MODELS.items()]
    texts = {model: text_of(model, options.tokens, options.seed) for model in models}
    references = {model: reference_of(work, model, text) for model, text in texts.items()}
    work.build("pecia")
    on_this_machine()
    about = {"tokens": options.tokens, "seed": options.seed, "ranks": options.ranks, "set": options.set}
    for model, text in texts.items():
        differences = measured(work, model, text, options.ranks, options.set) - references[model]
        work.keep([line_of(model, differences, about)])
    title = "Log-probabilities of tokens beside float64, in nats"
    show(title, HEADS, [row for line in work.lines for row in rows_of(line)])
    return 0
