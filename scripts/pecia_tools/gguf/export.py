# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face folder of one of the families of export_forms to a GGUF file in fp32 without a vocabulary: what
llama.cpp runs on token ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ml_dtypes  # noqa: F401 - makes numpy know bfloat16
import numpy as np
from gguf import GGUFWriter
from safetensors import safe_open

from ..command import UserError, temporary_file
from ..model_folder import read_json
from .export_forms import OfLayers, check_supported, form_of, parts_of
from .export_parts import Config, Part, head_dim, of_rotation

NO_VOCABULARY = "none"  # llama.cpp's name of it


def export_gguf(folder: Path, path: Path) -> None:
    """UserError for what the file could not say: other families, scaled positions, biases."""
    config = read_json(folder / "config.json")
    check_supported(config, folder)
    form = form_of(config)
    config = form.adapted(config)
    parts = list(parts_of(form, config))
    held = files_of(folder, parts)
    with temporary_file(path) as temporary:
        writer = GGUFWriter(temporary, form.architecture)
        write_config(writer, config, form.kv_heads(config), form.ffn(config))
        form.describe(writer, config)
        for part in parts:
            shape = shape_of(part, held)
            writer.add_tensor_info(part.name, shape, np.dtype(np.float32), 4 * int(np.prod(shape)))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for part in parts:
            made = [part.make(read_fp32(held[source], source)) for source in part.sources]
            values = np.stack(made) if part.is_stack else made[0]
            writer.write_tensor_data(np.ascontiguousarray(values))
        writer.close()


def shape_of(part: Part, held: dict[str, Path]) -> Sequence[int]:
    """`make` tells it of a tensor that has the shape and no memory."""
    source = part.sources[0]
    with safe_open(held[source], "numpy") as opened:
        stored = opened.get_slice(source).get_shape()
    shape = part.make(np.broadcast_to(np.float32(0), stored)).shape
    return [len(part.sources), *shape] if part.is_stack else shape


def read_fp32(file: Path, source: str) -> np.ndarray:
    with safe_open(file, "numpy") as opened:
        return opened.get_tensor(source).astype(np.float32)


def write_config(writer: GGUFWriter, config: Config, heads: OfLayers, ffn: OfLayers) -> None:
    """What every family has; `heads` are KV heads. A latent is a key of one head, and its beginning the value."""
    rotated = int(head_dim(config) * of_rotation(config, "partial_rotary_factor", 1))
    key_length, value_length = head_dim(config), head_dim(config)
    if "kv_lora_rank" in config:
        rotated, heads, value_length = config["qk_rope_head_dim"], 1, config["kv_lora_rank"]
        key_length = value_length + rotated
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(heads)
    writer.add_key_length(key_length)
    writer.add_value_length(value_length)
    writer.add_rope_dimension_count(rotated)
    writer.add_rope_freq_base(of_rotation(config, "rope_theta", 10000.0))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model(NO_VOCABULARY)


def files_of(folder: Path, parts: Sequence[Part]) -> dict[str, Path]:
    """Which file holds each tensor."""
    held: dict[str, Path] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "numpy") as opened:
            held.update(dict.fromkeys(opened.keys(), file))
    missing = [source for part in parts for source in part.sources if source not in held]
    if missing:
        raise UserError(f"{folder}: {len(missing)} tensors are missing, first {missing[0]}")
    return held
