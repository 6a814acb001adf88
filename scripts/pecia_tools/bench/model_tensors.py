# SPDX-License-Identifier: Apache-2.0
"""Names and shapes of the tensors of the models that make-bench-model makes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from .model_numbers import BLOCK, NVFP4_BLOCK, Shape


def is_full(options: argparse.Namespace, layer: int) -> bool:
    """Whether the layer has heads of --full-head-dim."""
    return bool(options.full_head_dim) and (layer % 6 == 5 or layer == options.layers - 1)


def tensors(options: argparse.Namespace) -> Iterator[tuple[str, Shape]]:
    """In the order of the file. See type_of for what their names say."""
    for name, shape in tensors_of_bf16(options):
        if not (options.nvfp4 and name.endswith("_proj.weight")):
            yield name, shape
            continue
        outputs, inputs = shape
        yield f"{name}_packed", (outputs, inputs // 2)
        yield f"{name}_scale", (outputs, inputs // NVFP4_BLOCK)
        yield f"{name}_global_scale", (1,)


def tensors_of_bf16(options: argparse.Namespace) -> Iterator[tuple[str, Shape]]:
    yield "model.embed_tokens.weight", (options.vocab, options.hidden)
    for layer in range(options.layers):
        prefix = f"model.layers.{layer}"
        full = is_full(options, layer)
        head_dim = options.full_head_dim if full else options.head_dim
        queries, keys = (
            options.heads * head_dim,
            (options.full_kv_heads if full else options.kv_heads) * head_dim,
        )
        if options.kv_rank:
            yield from latent_tensors(f"{prefix}.self_attn", options)
        else:
            yield f"{prefix}.self_attn.q_proj.weight", (queries, options.hidden)
            yield f"{prefix}.self_attn.k_proj.weight", (keys, options.hidden)
            if not full:
                yield f"{prefix}.self_attn.v_proj.weight", (keys, options.hidden)
        values = options.heads * options.value_dim if options.kv_rank else queries
        yield f"{prefix}.self_attn.o_proj.weight", (options.hidden, values)
        if options.gpt_oss:
            yield from gpt_oss_tensors(prefix, options)
            continue
        if options.llama_4:
            yield from llama_4_tensors(f"{prefix}.feed_forward", options)
            continue
        if not options.experts or layer < options.dense_layers:
            yield from gated_tensors(f"{prefix}.mlp", options.hidden, options.dense_ffn)
            continue
        yield f"{prefix}.mlp.gate.weight", (options.experts, options.hidden)
        if options.glm_4 or (options.kv_rank and not options.mistral_4):
            yield f"{prefix}.mlp.gate.e_score_correction_bias", (options.experts,)
        if options.mistral_4:
            experts = f"{prefix}.mlp.experts"
            yield f"{experts}.gate_up_proj", (options.experts, 2 * options.ffn, options.hidden)
            yield f"{experts}.down_proj", (options.experts, options.hidden, options.ffn)
        for expert in range(0 if options.mistral_4 else options.experts):
            yield from gated_tensors(f"{prefix}.mlp.experts.{expert}", options.hidden, options.ffn)
        if options.shared_experts:
            shared = options.shared_experts * options.ffn
            yield from gated_tensors(f"{prefix}.mlp.shared_experts", options.hidden, shared)
    yield "model.norm.weight", (options.hidden,)
    for layer in range(options.layers):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", (options.hidden,)
        yield f"{prefix}.post_attention_layernorm.weight", (options.hidden,)
        if options.full_head_dim:
            head_dim = options.full_head_dim if is_full(options, layer) else options.head_dim
            yield f"{prefix}.self_attn.q_norm.weight", (head_dim,)
            yield f"{prefix}.self_attn.k_norm.weight", (head_dim,)
            yield f"{prefix}.pre_feedforward_layernorm.weight", (options.hidden,)
            yield f"{prefix}.post_feedforward_layernorm.weight", (options.hidden,)
            yield f"{prefix}.layer_scalar", (1,)
        if options.kv_rank:
            yield f"{prefix}.self_attn.kv_a_layernorm.weight", (options.kv_rank,)
            if options.q_rank:
                yield f"{prefix}.self_attn.q_a_layernorm.weight", (options.q_rank,)
        elif options.glm_4:
            for name, heads in (
                ("q", options.heads),
                ("k", options.kv_heads),
                ("v", options.kv_heads),
            ):
                yield f"{prefix}.self_attn.{name}_proj.bias", (heads * options.head_dim,)
        elif options.experts and not (options.gpt_oss or options.llama_4):
            yield f"{prefix}.self_attn.q_norm.weight", (options.head_dim,)
            yield f"{prefix}.self_attn.k_norm.weight", (options.head_dim,)


def gated_tensors(prefix: str, hidden: int, ffn: int) -> Iterator[tuple[str, Shape]]:
    yield f"{prefix}.gate_proj.weight", (ffn, hidden)
    yield f"{prefix}.up_proj.weight", (ffn, hidden)
    yield f"{prefix}.down_proj.weight", (hidden, ffn)


def latent_tensors(prefix: str, options: argparse.Namespace) -> Iterator[tuple[str, Shape]]:
    queries = options.heads * (options.head_dim + options.rope_dim)
    if options.q_rank:
        yield f"{prefix}.q_a_proj.weight", (options.q_rank, options.hidden)
        yield f"{prefix}.q_b_proj.weight", (queries, options.q_rank)
    else:
        yield f"{prefix}.q_proj.weight", (queries, options.hidden)
    yield (
        f"{prefix}.kv_a_proj_with_mqa.weight",
        (options.kv_rank + options.rope_dim, options.hidden),
    )
    ups = options.heads * (options.head_dim + options.value_dim)
    yield f"{prefix}.kv_b_proj.weight", (ups, options.kv_rank)


def llama_4_tensors(prefix: str, options: argparse.Namespace) -> Iterator[tuple[str, Shape]]:
    experts, hidden, ffn = options.experts, options.hidden, options.ffn
    yield f"{prefix}.router.weight", (experts, hidden)
    yield f"{prefix}.experts.gate_up_proj", (experts, hidden, 2 * ffn)
    yield f"{prefix}.experts.down_proj", (experts, ffn, hidden)
    yield from gated_tensors(f"{prefix}.shared_expert", hidden, ffn)


def gpt_oss_tensors(prefix: str, options: argparse.Namespace) -> Iterator[tuple[str, Shape]]:
    experts, hidden, ffn = options.experts, options.hidden, options.ffn
    yield f"{prefix}.mlp.router.weight", (experts, hidden)
    for name, outputs, inputs in (("gate_up_proj", 2 * ffn, hidden), ("down_proj", hidden, ffn)):
        mlp = f"{prefix}.mlp.experts.{name}"
        yield f"{mlp}_blocks", (experts, outputs, inputs // BLOCK, BLOCK // 2)
        yield f"{mlp}_scales", (experts, outputs, inputs // BLOCK)
        yield f"{mlp}_bias", (experts, outputs)
    yield f"{prefix}.mlp.router.bias", (experts,)
    yield f"{prefix}.self_attn.sinks", (options.heads,)
    for name in ("q", "k", "v", "o"):
        heads = options.heads if name == "q" else options.kv_heads
        outputs = hidden if name == "o" else heads * options.head_dim
        yield f"{prefix}.self_attn.{name}_proj.bias", (outputs,)
