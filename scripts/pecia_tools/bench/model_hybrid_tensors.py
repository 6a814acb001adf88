# SPDX-License-Identifier: Apache-2.0
"""Names and shapes of the tensors of hybrids."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from .model_hybrids import CONV, is_recurrent, kinds_of_layers, shared_ffn
from .model_numbers import Shape
from .model_tensors import gated_tensors

Tensors = Iterator[tuple[str, Shape]]


def hybrid_tensors(options: argparse.Namespace) -> Tensors:
    """In the order of the file."""
    if options.nemotron_h:
        yield from nemotron_h_tensors(options)
        return
    yield "model.embed_tokens.weight", (options.vocab, options.hidden)
    for layer in range(options.layers):
        prefix = f"model.layers.{layer}"
        if not is_recurrent(options, layer):
            yield from attention(f"{prefix}.self_attn", options)
        elif options.delta_net:
            yield from delta_net(f"{prefix}.linear_attn", options)
        else:
            yield from mamba_2(f"{prefix}.mamba", options)
        feed_forward = qwen_feed_forward if options.delta_net else granite_feed_forward
        yield from feed_forward(prefix, options)
        for norm in ("input", "post_attention"):
            yield f"{prefix}.{norm}_layernorm.weight", (options.hidden,)
    yield "model.norm.weight", (options.hidden,)


def nemotron_h_tensors(options: argparse.Namespace) -> Tensors:
    """Each layer has one block."""
    yield "backbone.embeddings.weight", (options.vocab, options.hidden)
    for layer, kind in enumerate(kinds_of_layers(options)):
        mixer = f"backbone.layers.{layer}.mixer"
        if kind == "M":
            yield from mamba_2(mixer, options)
        elif kind == "*":
            yield from attention(mixer, options)
        elif kind == "-":
            yield from ungated(mixer, options.hidden, options.dense_ffn)
        else:
            yield f"{mixer}.gate.weight", (options.experts, options.hidden)
            yield f"{mixer}.gate.e_score_correction_bias", (options.experts,)
            for expert in range(options.experts):
                yield from ungated(f"{mixer}.experts.{expert}", options.hidden, options.ffn)
            yield from ungated(f"{mixer}.shared_experts", options.hidden, shared_ffn(options))
        yield f"backbone.layers.{layer}.norm.weight", (options.hidden,)
    yield "backbone.norm_f.weight", (options.hidden,)
    yield "lm_head.weight", (options.vocab, options.hidden)


def attention(prefix: str, options: argparse.Namespace) -> Tensors:
    queries, keys = options.heads * options.head_dim, options.kv_heads * options.head_dim
    gates = queries if options.delta_net else 0
    yield f"{prefix}.q_proj.weight", (queries + gates, options.hidden)
    yield f"{prefix}.k_proj.weight", (keys, options.hidden)
    yield f"{prefix}.v_proj.weight", (keys, options.hidden)
    yield f"{prefix}.o_proj.weight", (options.hidden, queries)
    if options.delta_net:
        yield f"{prefix}.q_norm.weight", (options.head_dim,)
        yield f"{prefix}.k_norm.weight", (options.head_dim,)


def delta_net(prefix: str, options: argparse.Namespace) -> Tensors:
    net, hidden = options.delta_net, options.hidden
    keys, values = net.key_heads * net.dim, net.heads * net.dim
    if options.experts:
        yield f"{prefix}.in_proj_qkvz.weight", (2 * keys + 2 * values, hidden)
        yield f"{prefix}.in_proj_ba.weight", (2 * net.heads, hidden)
    else:
        yield f"{prefix}.in_proj_qkv.weight", (2 * keys + values, hidden)
        yield f"{prefix}.in_proj_z.weight", (values, hidden)
        yield f"{prefix}.in_proj_b.weight", (net.heads, hidden)
        yield f"{prefix}.in_proj_a.weight", (net.heads, hidden)
    yield f"{prefix}.conv1d.weight", (2 * keys + values, 1, CONV)
    yield f"{prefix}.A_log", (net.heads,)
    yield f"{prefix}.dt_bias", (net.heads,)
    yield f"{prefix}.norm.weight", (net.dim,)
    yield f"{prefix}.out_proj.weight", (hidden, values)


def mamba_2(prefix: str, options: argparse.Namespace) -> Tensors:
    mamba, hidden = options.mamba, options.hidden
    inner = mamba.heads * mamba.dim
    channels = inner + 2 * mamba.groups * mamba.state
    yield f"{prefix}.in_proj.weight", (inner + channels + mamba.heads, hidden)
    yield f"{prefix}.conv1d.weight", (channels, 1, CONV)
    yield f"{prefix}.conv1d.bias", (channels,)
    for name in ("A_log", "D", "dt_bias"):
        yield f"{prefix}.{name}", (mamba.heads,)
    yield f"{prefix}.norm.weight", (inner,)
    yield f"{prefix}.out_proj.weight", (hidden, inner)


def ungated(prefix: str, hidden: int, ffn: int) -> Tensors:
    yield f"{prefix}.up_proj.weight", (ffn, hidden)
    yield f"{prefix}.down_proj.weight", (hidden, ffn)


def qwen_feed_forward(layer: str, options: argparse.Namespace) -> Tensors:
    prefix = f"{layer}.mlp"
    if not options.experts:
        yield from gated_tensors(prefix, options.hidden, options.ffn)
        return
    yield f"{prefix}.gate.weight", (options.experts, options.hidden)
    for expert in range(options.experts):
        yield from gated_tensors(f"{prefix}.experts.{expert}", options.hidden, options.ffn)
    yield from gated_tensors(f"{prefix}.shared_expert", options.hidden, shared_ffn(options))
    yield f"{prefix}.shared_expert_gate.weight", (1, options.hidden)


def granite_feed_forward(prefix: str, options: argparse.Namespace) -> Tensors:
    """The rows of gates lie above those of ups."""
    experts, hidden, ffn = options.experts, options.hidden, options.ffn
    shared = ffn
    if experts:
        shared = shared_ffn(options)
        moe = f"{prefix}.block_sparse_moe"
        yield f"{moe}.router.layer.weight", (experts, hidden)
        yield f"{moe}.input_linear.weight", (experts, 2 * ffn, hidden)
        yield f"{moe}.output_linear.weight", (experts, hidden, ffn)
    yield f"{prefix}.shared_mlp.input_linear.weight", (2 * shared, hidden)
    yield f"{prefix}.shared_mlp.output_linear.weight", (hidden, shared)
