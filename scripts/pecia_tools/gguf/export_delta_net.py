# SPDX-License-Identifier: Apache-2.0
"""What a GGUF file holds of Qwen3.5 and Qwen3-Next."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from gguf import GGUFWriter

from .export_hybrids import ATTENDING, FULL, attends, describe_state, rate, squeezed
from .export_parts import (
    QK_NORMS,
    Config,
    Part,
    Values,
    experts,
    gated,
    problem_of_mixture,
    top_names,
    weights_of,
)


def with_norms_of_one_more(names: dict[str, str]) -> Iterator[Part]:
    """The families multiply by 1 + a norm's weight, and llama.cpp by the weight."""
    for part in weights_of(names):
        yield Part(part.name, part.sources, lambda x: x + 1) if part.name.endswith("_norm.weight") else part


def delta_net_config(config: Config) -> Config:
    """With what is meant where it says nothing."""
    every = config.get("full_attention_interval", 4)
    kinds = ["linear_attention" if layer % every else FULL[0] for layer in range(1, config["num_hidden_layers"] + 1)]
    return {"partial_rotary_factor": 0.25, **config, "layer_types": config.get("layer_types") or kinds}


def delta_net_top(config: Config) -> Iterator[Part]:
    yield from with_norms_of_one_more(top_names(config))


def delta_net_block(config: Config, layer: int) -> Iterator[Part]:
    """The layer without its feed-forward."""
    norms = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm"}
    if attends(config, layer):
        yield from with_norms_of_one_more({**norms, **ATTENDING, **QK_NORMS})
        return
    yield from with_norms_of_one_more(norms)
    yield from (next_mixer if config["model_type"] == "qwen3_next" else qwen_mixer)(config)
    yield Part("ssm_norm.weight", ["linear_attn.norm.weight"])


def next_mixer(config: Config) -> Iterator[Part]:
    """Rows of q, k, v and z lie by key head; llama.cpp wants them by kind, and those of b and a as they are."""
    heads, per = config["linear_num_key_heads"], config["linear_num_value_heads"] // config["linear_num_key_heads"]
    key, value = config["linear_key_head_dim"], per * config["linear_value_head_dim"]

    def rows(x: Values, first: int, count: int) -> Values:
        return x.reshape(heads, 2 * (key + value), -1)[:, first : first + count].reshape(heads * count, -1)

    def qkv(x: Values) -> Values:
        return np.concatenate([rows(x, 0, key), rows(x, key, key), rows(x, 2 * key, value)])

    together = ["linear_attn.in_proj_qkvz.weight"]
    yield Part("attn_qkv.weight", together, qkv)
    yield Part("attn_gate.weight", together, lambda x: rows(x, 2 * key + value, value))
    yield Part("ssm_ba.weight", ["linear_attn.in_proj_ba.weight"])
    yield Part("ssm_conv1d.weight", ["linear_attn.conv1d.weight"], squeezed)
    yield Part("ssm_a", ["linear_attn.A_log"], rate)
    yield Part("ssm_dt.bias", ["linear_attn.dt_bias"])
    yield Part("ssm_out.weight", ["linear_attn.out_proj.weight"])


def qwen_mixer(config: Config) -> Iterator[Part]:
    """Value heads of one key head are neighbours; llama.cpp wants the first ones of all key heads, then the second."""
    heads, keys = config["linear_num_key_heads"], config["linear_num_key_heads"] * config["linear_key_head_dim"]

    def in_turn(x: Values) -> Values:
        return x.reshape(heads, config["linear_num_value_heads"] // heads, -1).swapaxes(0, 1).reshape(x.shape)

    def values_in_turn(x: Values) -> Values:
        return np.concatenate([x[: 2 * keys], in_turn(x[2 * keys :])])

    yield Part("attn_qkv.weight", ["linear_attn.in_proj_qkv.weight"], values_in_turn)
    yield Part("attn_gate.weight", ["linear_attn.in_proj_z.weight"], in_turn)
    yield Part("ssm_beta.weight", ["linear_attn.in_proj_b.weight"], in_turn)
    yield Part("ssm_alpha.weight", ["linear_attn.in_proj_a.weight"], in_turn)
    yield Part("ssm_conv1d.weight", ["linear_attn.conv1d.weight"], lambda x: values_in_turn(squeezed(x)))
    yield Part("ssm_a", ["linear_attn.A_log"], lambda x: in_turn(rate(x)))
    yield Part("ssm_dt.bias", ["linear_attn.dt_bias"], in_turn)
    yield Part("ssm_out.weight", ["linear_attn.out_proj.weight"], lambda x: in_turn(x.T).T)


def qwen_layer(config: Config, layer: int) -> Iterator[Part]:
    yield from delta_net_block(config, layer)
    yield from weights_of(gated("ffn_{}", "mlp.{}_proj"))


def next_layer(config: Config, layer: int) -> Iterator[Part]:
    yield from delta_net_block(config, layer)
    yield from weights_of({"ffn_gate_inp": "mlp.gate"})
    yield from experts(config["num_experts"])
    yield from weights_of(gated("ffn_{}_shexp", "mlp.shared_expert.{}_proj"))
    yield Part("ffn_gate_inp_shexp.weight", ["mlp.shared_expert_gate.weight"], lambda x: x[0])


def describe_delta_net(writer: GGUFWriter, config: Config) -> None:
    heads, dim = config["linear_num_value_heads"], config["linear_key_head_dim"]
    describe_state(writer, config["linear_conv_kernel_dim"], heads, heads * dim, dim, config["linear_num_key_heads"])
    writer.add_full_attention_interval(interval(config))
    if config["model_type"] == "qwen3_next":
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    else:  # llama.cpp asks for it, though it changes nothing in a text
        writer.add_rope_dimension_sections([*config["rope_parameters"]["mrope_section"], 0])


def interval(config: Config) -> int:
    """From one layer that attends to the next; more than there are layers where none attends."""
    layers = config["num_hidden_layers"]
    return next((layer + 1 for layer in range(layers) if attends(config, layer)), layers + 1)


def problem_of_delta_net(config: Config) -> str:
    if config["linear_key_head_dim"] != config["linear_value_head_dim"]:
        return "keys and values of the delta net have different sizes"
    if any(attends(config, i) != ((i + 1) % interval(config) == 0) for i in range(config["num_hidden_layers"])):
        return "layers that attend do not follow each other in one interval"
    if config["model_type"] == "qwen3_next" and not config.get("norm_topk_prob", True):
        return "norm_topk_prob is false"
    if config["model_type"] == "qwen3_5_text" and "mrope_section" not in (config.get("rope_parameters") or {}):
        return "rope_parameters has no mrope_section"
    return problem_of_mixture(config)
