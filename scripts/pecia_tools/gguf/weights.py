# SPDX-License-Identifier: Apache-2.0
"""GGUF tensors to model.safetensors, one tensor in memory at a time."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from gguf.quants import dequantize

from ..command import UserError
from .model import GgufModel

DTYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16, "fp32": np.float32}
SAFETENSORS_NAMES = {"bf16": "BF16", "fp16": "F16", "fp32": "F32"}
LAYER = {  # inside blk.N. → inside model.layers.N.
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def write_safetensors(model: GgufModel, dtype: str, path: Path) -> tuple[int, int]:
    """Returns the numbers of tensors and of parameters."""
    names = {tensor.name: hugging_face_name(model, tensor.name) for tensor in model.tensors}
    check_complete(model, set(names.values()))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = parameters = 0
    for tensor in model.tensors:
        size = int(np.prod(shape_of(tensor)))
        end = offset + size * np.dtype(DTYPES[dtype]).itemsize
        header[names[tensor.name]] = {
            "dtype": SAFETENSORS_NAMES[dtype],
            "shape": shape_of(tensor),
            "data_offsets": [offset, end],
        }
        offset, parameters = end, parameters + size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of 8
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in converted(model, dtype):
            file.write(values.tobytes())
    return len(names), parameters


def converted(model: GgufModel, dtype: str) -> Iterator[np.ndarray]:
    for tensor in model.tensors:
        try:
            values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        except NotImplementedError as error:
            raise model.unsupported(
                f"tensor {tensor.name} has type {tensor.tensor_type.name}"
            ) from error
        values = values.reshape(shape_of(tensor))
        if ".attn_q." in tensor.name:
            values = halves_from_pairs(values, model.num_heads)
        elif ".attn_k." in tensor.name:
            values = halves_from_pairs(values, model.num_kv_heads)
        with np.errstate(over="ignore"):
            narrowed = values.astype(DTYPES[dtype])
        if not np.isfinite(narrowed.astype(np.float32)).all():
            raise UserError(
                f"{model.where}: tensor {tensor.name} has values that are not finite in {dtype}. "
                "Choose --dtype bf16 or fp32; if that fails too the file is damaged"
            )
        yield narrowed


def shape_of(tensor: Any) -> list[int]:
    return [int(n) for n in reversed(tensor.shape)]  # GGUF lists the fastest axis first


def halves_from_pairs(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """GGUF keeps the rows of a head in rotary pairs (x0 y0 x1 y1 …), Hugging Face in halves (x0 x1 … y0 y1 …)."""
    half = weight.shape[0] // num_heads // 2
    return weight.reshape(num_heads, half, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def hugging_face_name(model: GgufModel, name: str) -> str:
    stem, _, kind = name.rpartition(".")
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if kind == "weight" and layer and layer[2] in LAYER and int(layer[1]) < model.num_layers:
        return f"model.layers.{layer[1]}.{LAYER[layer[2]]}.weight"
    if kind == "weight" and stem in TOP:
        return f"{TOP[stem]}.weight"
    raise model.unsupported(
        f"tensor {name} (biases, experts and rotary frequency factors are among those left out)"
    )


def check_complete(model: GgufModel, names: set[str]) -> None:
    expected = {
        f"model.layers.{n}.{part}.weight"
        for n in range(model.num_layers)
        for part in LAYER.values()
    }
    missing = sorted((expected | {"model.embed_tokens.weight", "model.norm.weight"}) - names)
    if missing:
        raise UserError(
            f"{model.where}: {len(missing)} tensors are missing, first {missing[0]}; the file is damaged"
        )
