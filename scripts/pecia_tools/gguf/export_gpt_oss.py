# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face folder of a gpt-oss to a GGUF file without a vocabulary: matrices in bf16, experts in MXFP4 as
stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - makes numpy know bfloat16
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, RopeScalingType
from safetensors import safe_open

from ..command import UserError, temporary_file
from ..model_folder import read_json
from .export import write_config
from .export_parts import kv_heads

Kind = GGMLQuantizationType
BLOCK = 32  # numbers of MXFP4 that share a scale
LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "attn_sinks.weight": "self_attn.sinks",
    "ffn_gate_inp.weight": "mlp.router.weight",
    "ffn_gate_inp.bias": "mlp.router.bias",
    **{
        f"attn_{part}.{what}": f"self_attn.{part[0]}_proj.{what}"
        for part in ("q", "k", "v", "output")
        for what in ("weight", "bias")
    },
}

Tensor = tuple[str, np.ndarray, GGMLQuantizationType]


def export_gpt_oss(folder: Path, path: Path) -> None:
    """UserError for other families, for other stored types of experts, and for missing tensors."""
    config = read_json(folder / "config.json")
    if config.get("model_type") != "gpt_oss":
        raise UserError(f"{folder}: model_type is '{config.get('model_type')}', not 'gpt_oss'")
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") != "yarn":
        raise UserError(f"{folder}: rope_scaling is {scaling}, not yarn")
    with temporary_file(path) as temporary, ExitStack() as stack:
        writer = GGUFWriter(temporary, "gpt-oss")
        write_config(writer, config, kv_heads(config), config["intermediate_size"])
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["intermediate_size"])
        writer.add_sliding_window(config["sliding_window"])
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
        held: dict[str, Any] = {}
        for file in sorted(folder.glob("*.safetensors")):
            opened = stack.enter_context(safe_open(file, "numpy"))
            held.update(dict.fromkeys(opened.keys(), opened))
        for name, values, kind in tensors(config, Stored(folder, held)):
            writer.add_tensor(name, values, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


class Stored:
    """The checkpoint's tensors by name, as they are stored."""

    def __init__(self, folder: Path, held: dict[str, Any]) -> None:
        self.folder, self.held = folder, held

    def __call__(self, name: str) -> np.ndarray:
        if name not in self.held:
            raise UserError(f"{self.folder}: tensor {name} is missing")
        return self.held[name].get_tensor(name)


def tensors(config: dict[str, Any], stored: Stored) -> Iterator[Tensor]:
    embedding = stored("model.embed_tokens.weight")
    yield dense("token_embd.weight", embedding)
    tied = config.get("tie_word_embeddings")
    yield dense("output.weight", embedding if tied else stored("lm_head.weight"))
    yield dense("output_norm.weight", stored("model.norm.weight"))
    for layer in range(config["num_hidden_layers"]):
        to, source = f"blk.{layer}", f"model.layers.{layer}"
        for name, theirs in LAYER.items():
            yield dense(f"{to}.{name}", stored(f"{source}.{theirs}"))
        experts = f"{source}.mlp.experts"
        gate_up = packed(stored, f"{experts}.gate_up_proj")
        bias = stored(f"{experts}.gate_up_proj_bias")
        for first, name in enumerate(("gate", "up")):  # their rows take turns
            yield f"{to}.ffn_{name}_exps.weight", gate_up[:, first::2].copy(), Kind.MXFP4
            yield dense(f"{to}.ffn_{name}_exps.bias", bias[:, first::2], matrix=False)
        yield f"{to}.ffn_down_exps.weight", packed(stored, f"{experts}.down_proj"), Kind.MXFP4
        yield dense(f"{to}.ffn_down_exps.bias", stored(f"{experts}.down_proj_bias"), matrix=False)


def dense(name: str, values: np.ndarray, matrix: bool = True) -> Tensor:
    """Matrices in bf16; the router, vectors and biases in fp32, as llama.cpp wants them."""
    if matrix and values.ndim == 2 and "ffn_gate_inp" not in name:
        return name, values.astype("bfloat16").view(np.uint8), Kind.BF16
    return name, np.ascontiguousarray(values.astype(np.float32)), Kind.F32


def packed(stored: Stored, name: str) -> np.ndarray:
    """Bytes [experts, rows, blocks · 17]: before each block its scale. GGUF keeps numbers 0 … 15 of a block in the
    lower halves of its bytes and 16 … 31 in the upper ones; here a byte has two neighbours."""
    blocks, scales = stored(f"{name}_blocks"), stored(f"{name}_scales")
    numbers = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*blocks.shape[:-1], BLOCK)
    half = BLOCK // 2
    halves = numbers[..., :half] | numbers[..., half:] << 4
    return np.concatenate([scales[..., None], halves], axis=-1).reshape(*scales.shape[:2], -1)
