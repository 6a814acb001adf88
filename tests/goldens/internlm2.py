# SPDX-License-Identifier: Apache-2.0
"""InternLM2's tensor names and its packed wqkv, to and from those of the equal Llama model.

With g = heads / KV heads, wqkv is [KV heads, g + 2, head size, hidden]: for each KV head its g
query heads, then its key head, then its value head. A bias is packed in the same way.
"""

import torch

from cases import Config
from oracle import Tensors

TO_INTERNLM2 = {
    "model.embed_tokens": "model.tok_embeddings",
    "lm_head": "output",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
}


def renamed(name: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        if old in name:
            return name.replace(old, new)
    return name


def head_shape(config: Config) -> tuple[int, int, int]:
    """KV heads, query heads of each, head size."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    return kv_heads, heads // kv_heads, config["hidden_size"] // heads


def pack(llama: Tensors, config: Config) -> Tensors:
    kv_heads, group, head_dim = head_shape(config)
    packed: Tensors = {}
    for name, q in llama.items():
        if "k_proj" in name or "v_proj" in name:
            continue  # taken with their q_proj
        if "q_proj" not in name:
            packed[renamed(name, TO_INTERNLM2)] = q
            continue
        k, v = (llama[name.replace("q_proj", other)] for other in ("k_proj", "v_proj"))
        blocks = [
            x.unflatten(0, (kv_heads, rows, head_dim)) for x, rows in ((q, group), (k, 1), (v, 1))
        ]
        packed[name.replace("self_attn.q_proj", "attention.wqkv")] = torch.cat(blocks, 1).flatten(
            0, 2
        )
    return dict(sorted(packed.items()))


def unpack(stored: Tensors, config: Config) -> Tensors:
    kv_heads, group, head_dim = head_shape(config)
    to_llama = {new: old for old, new in TO_INTERNLM2.items()}
    llama: Tensors = {}
    for name, tensor in stored.items():
        if "wqkv" not in name:
            llama[renamed(name, to_llama)] = tensor
            continue
        heads = tensor.unflatten(0, (kv_heads, group + 2, head_dim))
        for letter, part in (
            ("q", heads[:, :group]),
            ("k", heads[:, group]),
            ("v", heads[:, group + 1]),
        ):
            unpacked = part.reshape(-1, *tensor.shape[1:])
            llama[name.replace("attention.wqkv", f"self_attn.{letter}_proj")] = unpacked
    return llama
