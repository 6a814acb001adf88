# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face folder of a Llama to a GGUF file in fp32 without a vocabulary: what llama.cpp runs on token ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - makes numpy know bfloat16
import numpy as np
from gguf import GGUFWriter
from safetensors import safe_open

from .command import UserError, temporary_file
from .gguf_model import ARCHITECTURE
from .gguf_weights import LAYER, TOP
from .model_folder import read_json

NO_VOCABULARY = "none"  # llama.cpp's name of it


def export_gguf(folder: Path, path: Path) -> None:
    """UserError for what the file could not say: other families, scaled positions, biases."""
    config = read_json(folder / "config.json")
    problem = unsupported(config)
    if problem:
        raise UserError(f"{folder}: {problem}; only a plain Llama can be written as GGUF")
    sources = tensors(folder, config)
    with temporary_file(path) as temporary:
        writer = GGUFWriter(temporary, ARCHITECTURE)
        write_config(writer, config)
        for name, (file, source) in sources.items():
            with safe_open(file, "numpy") as opened:
                shape = opened.get_slice(source).get_shape()
            writer.add_tensor_info(name, shape, np.dtype(np.float32), 4 * int(np.prod(shape)))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name, (file, source) in sources.items():
            with safe_open(file, "numpy") as opened:
                values = opened.get_tensor(source).astype(np.float32)
            if ".attn_q." in name:
                values = pairs_from_halves(values, config["num_attention_heads"])
            elif ".attn_k." in name:
                values = pairs_from_halves(values, kv_heads(config))
            writer.write_tensor_data(np.ascontiguousarray(values))
        writer.close()


def unsupported(config: dict[str, Any]) -> str:
    """Why not, or ""."""
    if config.get("model_type") != "llama":
        return f"model_type is '{config.get('model_type')}'"
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type", scaling.get("type", "default")) != "default":
        return f"rope_scaling is {scaling}"
    for key in ("attention_bias", "mlp_bias"):
        if config.get(key):
            return f"{key} is true"
    return ""


def kv_heads(config: dict[str, Any]) -> int:
    return config.get("num_key_value_heads", config["num_attention_heads"])


def write_config(writer: GGUFWriter, config: dict[str, Any]) -> None:
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads(config))
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config.get("rope_theta", 10000.0))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model(NO_VOCABULARY)


def tensors(folder: Path, config: dict[str, Any]) -> dict[str, tuple[Path, str]]:
    """By GGUF name: the file that holds a tensor, and its name there."""
    wanted = {f"{top}.weight": f"{source}.weight" for top, source in TOP.items()}
    if config.get("tie_word_embeddings"):
        del wanted["output.weight"]
    for layer in range(config["num_hidden_layers"]):
        for part, source in LAYER.items():
            wanted[f"blk.{layer}.{part}.weight"] = f"model.layers.{layer}.{source}.weight"
    held: dict[str, Path] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "numpy") as opened:
            held.update(dict.fromkeys(opened.keys(), file))
    missing = [source for source in wanted.values() if source not in held]
    if missing:
        raise UserError(f"{folder}: {len(missing)} tensors are missing, first {missing[0]}")
    return {name: (held[source], source) for name, source in wanted.items()}


def pairs_from_halves(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """The way back from gguf_weights.halves_from_pairs."""
    half = weight.shape[0] // num_heads // 2
    return weight.reshape(num_heads, 2, half, -1).swapaxes(1, 2).reshape(weight.shape)
