"""make-bench-model FOLDER: a Llama checkpoint of a given shape with random bf16 weights, for benchmarks alone.

The same options give the same bytes. Nothing is done where the folder already holds that model.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from .command import UserError, note, run

PROGRAM = "make-bench-model"
CONTEXT = 1 << 20  # position limit of the configuration; no cost hangs on it


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--ffn", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--vocab", type=int, default=32768)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    shape = {name: value for name, value in vars(options).items() if name not in ("folder", "seed")}
    for name, value in shape.items():
        if value < 1:
            raise UserError(f"--{name.replace('_', '-')} is {value}; it must be at least 1")
    if options.heads % options.kv_heads != 0:
        raise UserError(f"--kv-heads {options.kv_heads} does not divide --heads {options.heads}")
    return options


def configuration(options: argparse.Namespace) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": options.vocab,
        "hidden_size": options.hidden,
        "intermediate_size": options.ffn,
        "num_hidden_layers": options.layers,
        "num_attention_heads": options.heads,
        "num_key_value_heads": options.kv_heads,
        "head_dim": options.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
        "seed": options.seed,
    }


def matrices(options: argparse.Namespace) -> Iterator[tuple[str, tuple[int, int]]]:
    queries, keys = options.heads * options.head_dim, options.kv_heads * options.head_dim
    yield "model.embed_tokens.weight", (options.vocab, options.hidden)
    for layer in range(options.layers):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.self_attn.q_proj.weight", (queries, options.hidden)
        yield f"{prefix}.self_attn.k_proj.weight", (keys, options.hidden)
        yield f"{prefix}.self_attn.v_proj.weight", (keys, options.hidden)
        yield f"{prefix}.self_attn.o_proj.weight", (options.hidden, queries)
        yield f"{prefix}.mlp.gate_proj.weight", (options.ffn, options.hidden)
        yield f"{prefix}.mlp.up_proj.weight", (options.ffn, options.hidden)
        yield f"{prefix}.mlp.down_proj.weight", (options.hidden, options.ffn)


def tensors(options: argparse.Namespace) -> dict[str, np.ndarray]:
    random = np.random.default_rng(options.seed)
    weights = {
        # 1/sqrt(inputs) keeps activations of order 1 through any number of layers.
        name: (random.standard_normal(shape, dtype=np.float32) / np.sqrt(shape[1])).astype(
            ml_dtypes.bfloat16
        )
        for name, shape in matrices(options)
    }
    ones = np.ones(options.hidden, dtype=ml_dtypes.bfloat16)
    weights["model.norm.weight"] = ones
    for layer in range(options.layers):
        weights[f"model.layers.{layer}.input_layernorm.weight"] = ones
        weights[f"model.layers.{layer}.post_attention_layernorm.weight"] = ones
    return weights


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    text = json.dumps(configuration(options), indent=2) + "\n"
    kept = options.folder / "config.json"
    if kept.is_file():
        if kept.read_text(encoding="utf-8") == text:
            return 0
        raise UserError(f"{options.folder} holds another model; name another folder or remove it")
    options.folder.mkdir(parents=True, exist_ok=True)
    weights = tensors(options)
    save_file(weights, options.folder / "model.safetensors")
    kept.write_text(text, encoding="utf-8")  # last: whoever finds it finds a whole model
    count = sum(weight.size for weight in weights.values())
    note(PROGRAM, f"{count / 1e6:.1f}M parameters → {options.folder}")
    return 0


if __name__ == "__main__":
    run(PROGRAM, main)
