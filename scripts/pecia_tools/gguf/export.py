# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face folder of a Llama or a Qwen3 mixture of experts to a GGUF file in fp32 without a vocabulary: what
llama.cpp runs on token ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - makes numpy know bfloat16
import numpy as np
from gguf import GGUFWriter
from safetensors import safe_open

from ..command import UserError, temporary_file
from ..model_folder import read_json
from .model import ARCHITECTURE
from .weights import LAYER, TOP

NO_VOCABULARY = "none"  # llama.cpp's name of it
MIXTURE = "qwen3_moe"
ARCHITECTURES = {"llama": ARCHITECTURE, MIXTURE: "qwen3moe"}  # by model_type
DENSE = ("ffn_gate", "ffn_up", "ffn_down")  # what a layer of experts does not have
MIXTURE_LAYER = {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate_inp": "mlp.gate",
}
EXPERTS = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}

Sources = list[tuple[Path, str]]  # the file that holds a tensor, and its name there


def export_gguf(folder: Path, path: Path) -> None:
    """UserError for what the file could not say: other families, scaled positions, biases."""
    config = read_json(folder / "config.json")
    problem = unsupported(config)
    if problem:
        raise UserError(
            f"{folder}: {problem}; only a plain Llama or {MIXTURE} can be written as GGUF"
        )
    sources = tensors(folder, config)
    with temporary_file(path) as temporary:
        writer = GGUFWriter(temporary, ARCHITECTURES[config["model_type"]])
        write_config(writer, config)
        for name, parts in sources.items():
            file, source = parts[0]
            with safe_open(file, "numpy") as opened:
                shape = opened.get_slice(source).get_shape()
            if is_of_experts(name):
                shape = [len(parts), *shape]
            writer.add_tensor_info(name, shape, np.dtype(np.float32), 4 * int(np.prod(shape)))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name, parts in sources.items():
            values = np.stack([read_fp32(*part) for part in parts])
            if not is_of_experts(name):
                values = values[0]
            if config["model_type"] == "llama" and ".attn_q." in name:
                values = pairs_from_halves(values, config["num_attention_heads"])
            elif config["model_type"] == "llama" and ".attn_k." in name:
                values = pairs_from_halves(values, kv_heads(config))
            writer.write_tensor_data(np.ascontiguousarray(values))
        writer.close()


def is_of_experts(name: str) -> bool:
    """Of a tensor in GGUF that stacks those of all experts."""
    return name.split(".")[-2] in EXPERTS


def read_fp32(file: Path, source: str) -> np.ndarray:
    with safe_open(file, "numpy") as opened:
        return opened.get_tensor(source).astype(np.float32)


def unsupported(config: dict[str, Any]) -> str:
    """Why not, or ""."""
    if config.get("model_type") not in ARCHITECTURES:
        return f"model_type is '{config.get('model_type')}'"
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type", scaling.get("type", "default")) != "default":
        return f"rope_scaling is {scaling}"
    if config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1:
        return "some layers have no experts"
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
    if config["model_type"] == MIXTURE:
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def tensors(folder: Path, config: dict[str, Any]) -> dict[str, Sources]:
    """By GGUF name: a tensor, or those of all experts."""
    wanted = {f"{top}.weight": [f"{source}.weight"] for top, source in TOP.items()}
    if config.get("tie_word_embeddings"):
        del wanted["output.weight"]
    parts = LAYER
    if config["model_type"] == MIXTURE:
        parts = {part: LAYER[part] for part in LAYER if part not in DENSE} | MIXTURE_LAYER
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        for part, source in parts.items():
            wanted[f"blk.{layer}.{part}.weight"] = [f"{prefix}.{source}.weight"]
        if config["model_type"] != MIXTURE:
            continue
        for part, source in EXPERTS.items():
            wanted[f"blk.{layer}.{part}.weight"] = [
                f"{prefix}.mlp.experts.{expert}.{source}.weight"
                for expert in range(config["num_experts"])
            ]
    held: dict[str, Path] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "numpy") as opened:
            held.update(dict.fromkeys(opened.keys(), file))
    missing = [one for sources in wanted.values() for one in sources if one not in held]
    if missing:
        raise UserError(f"{folder}: {len(missing)} tensors are missing, first {missing[0]}")
    return {name: [(held[one], one) for one in sources] for name, sources in wanted.items()}


def pairs_from_halves(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """The way back from gguf_weights.halves_from_pairs."""
    half = weight.shape[0] // num_heads // 2
    return weight.reshape(num_heads, 2, half, -1).swapaxes(1, 2).reshape(weight.shape)
