# SPDX-License-Identifier: Apache-2.0
"""What a GGUF file holds of Granite 4 and Nemotron-H."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gguf import GGUFWriter

from .export_hybrids import ATTENDING, attends, describe_state, rate, squeezed
from .export_parts import Config, Part, kv_heads, top_names, weights_of

NEMOTRON_TOP = {"token_embd": "backbone.embeddings", "output_norm": "backbone.norm_f", "output": "lm_head"}
KINDS = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-", "moe": "E"}


def mamba_2(source: str, groups: int, has_conv_bias: bool) -> Iterator[Part]:
    yield from weights_of({"ssm_in": f"{source}.in_proj", "ssm_out": f"{source}.out_proj"})
    yield Part("ssm_conv1d.weight", [f"{source}.conv1d.weight"], squeezed)
    if has_conv_bias:
        yield Part("ssm_conv1d.bias", [f"{source}.conv1d.bias"])
    yield Part("ssm_dt.bias", [f"{source}.dt_bias"])
    yield Part("ssm_a", [f"{source}.A_log"], lambda x: rate(x)[:, None])
    yield Part("ssm_d", [f"{source}.D"], lambda x: x[:, None])
    yield Part("ssm_norm.weight", [f"{source}.norm.weight"], lambda x: x.reshape(groups, -1))


def problem_of_steps(config: Config) -> str:
    least, most = config.get("time_step_limit") or (0.0, float("inf"))
    bounded = least != 0 or most not in (float("inf"), {"__float__": "Infinity"})
    return "time_step_limit bounds steps" if bounded else ""


def granite_layer(config: Config, layer: int) -> Iterator[Part]:
    yield from weights_of({"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"})
    if attends(config, layer):
        yield from weights_of(ATTENDING)
    else:
        yield from mamba_2("mamba", config["mamba_n_groups"], config["mamba_conv_bias"])
    shared = "_shexp" if config["num_local_experts"] else ""
    yield from gates_above_ups(shared, "shared_mlp")
    if config["num_local_experts"]:
        yield from weights_of({"ffn_gate_inp": "block_sparse_moe.router.layer"})
        yield from gates_above_ups("_exps", "block_sparse_moe")


def gates_above_ups(part: str, source: str) -> Iterator[Part]:
    """A feed-forward whose gate and up are one matrix; or of each expert."""
    both = [f"{source}.input_linear.weight"]
    yield Part(f"ffn_gate{part}.weight", both, lambda x: np.split(x, 2, axis=-2)[0])
    yield Part(f"ffn_up{part}.weight", both, lambda x: np.split(x, 2, axis=-2)[1])
    yield from weights_of({f"ffn_down{part}": f"{source}.output_linear"})


def granite_kv_heads(config: Config) -> list[int]:
    return [kv_heads(config) if attends(config, layer) else 0 for layer in range(config["num_hidden_layers"])]


def granite_ffn(config: Config) -> int:
    return int(config["intermediate_size" if config["num_local_experts"] else "shared_intermediate_size"])


def granite_inner(config: Config) -> int:
    return int(config["mamba_expand"] * config["hidden_size"])


def describe_granite(writer: GGUFWriter, config: Config) -> None:
    heads, groups = config["mamba_n_heads"], config["mamba_n_groups"]
    describe_state(writer, config["mamba_d_conv"], heads, granite_inner(config), config["mamba_d_state"], groups)
    writer.add_rope_scaling_finetuned(False)  # by it llama.cpp knows that nothing is rotated
    writer.add_attention_scale(config["attention_multiplier"])
    writer.add_embedding_scale(config["embedding_multiplier"])
    writer.add_residual_scale(config["residual_multiplier"])
    writer.add_logit_scale(config["logits_scaling"])
    if config["num_local_experts"]:
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_shared_feed_forward_length(config["shared_intermediate_size"])


def problem_of_granite(config: Config) -> str:
    if config.get("position_embedding_type") == "rope":
        return "position_embedding_type is 'rope'"
    if granite_inner(config) != 2 * config["hidden_size"]:
        return f"mamba_expand is {config['mamba_expand']}, not 2"
    if config.get("mamba_proj_bias"):
        return "mamba_proj_bias is true"
    return problem_of_steps(config)


def nemotron_pattern(config: Config) -> str:
    """M: Mamba-2, *: attention, -: a feed-forward, E: experts."""
    pattern = config.get("hybrid_override_pattern")
    return str(pattern) if pattern else "".join(KINDS[kind] for kind in config["layers_block_type"])


def nemotron_top(config: Config) -> Iterator[Part]:
    yield from weights_of(top_names(config, NEMOTRON_TOP))


def nemotron_layer(config: Config, layer: int) -> Iterator[Part]:
    yield from weights_of({"attn_norm": "norm"})
    kind = nemotron_pattern(config)[layer]
    if kind == "M":
        yield from mamba_2("mixer", config["n_groups"], config["use_conv_bias"])
    elif kind == "*":
        yield from weights_of({part: source.replace("self_attn", "mixer") for part, source in ATTENDING.items()})
    elif kind == "-":
        yield from weights_of({"ffn_up": "mixer.up_proj", "ffn_down": "mixer.down_proj"})
    else:
        yield from weights_of({"ffn_gate_inp": "mixer.gate"})
        yield Part("exp_probs_b.bias", ["mixer.gate.e_score_correction_bias"])
        for one in ("up", "down"):
            sources = [f"mixer.experts.{expert}.{one}_proj.weight" for expert in range(config["n_routed_experts"])]
            yield Part(f"ffn_{one}_exps.weight", sources, is_stack=True)
        yield from weights_of({f"ffn_{one}_shexp": f"mixer.shared_experts.{one}_proj" for one in ("up", "down")})


def nemotron_config(config: Config) -> Config:
    """In the keys of other families."""
    layers = len(nemotron_pattern(config))
    return {**config, "num_hidden_layers": layers, "rms_norm_eps": config["layer_norm_epsilon"]}


def nemotron_kv_heads(config: Config) -> list[int]:
    """By layer, as llama.cpp knows kinds of layers: without KV heads and a feed-forward it is Mamba-2."""
    return [kv_heads(config) if kind == "*" else 0 for kind in nemotron_pattern(config)]


def nemotron_ffn(config: Config) -> list[int]:
    columns = {"-": config["intermediate_size"], "E": config.get("moe_intermediate_size")}
    return [columns.get(kind, 0) for kind in nemotron_pattern(config)]


def describe_nemotron(writer: GGUFWriter, config: Config) -> None:
    heads, inner = config["mamba_num_heads"], config["mamba_num_heads"] * config["mamba_head_dim"]
    describe_state(writer, config["conv_kernel"], heads, inner, config["ssm_state_size"], config["n_groups"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])  # which llama.cpp asks for, beside that of RMS norms
    if "E" in nemotron_pattern(config):
        writer.add_expert_count(config["n_routed_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_shared_count(config["n_shared_experts"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        writer.add_expert_shared_feed_forward_length(config["moe_shared_expert_intermediate_size"])
        writer.add_expert_weights_norm(config["norm_topk_prob"])
        writer.add_expert_weights_scale(config["routed_scaling_factor"])


def problem_of_nemotron(config: Config) -> str:
    pattern = nemotron_pattern(config)
    if "-" in pattern and "E" in pattern:
        return f"hybrid_override_pattern {pattern} has feed-forwards with experts and without"
    refused: dict[str, Any] = {"moe_latent_size": None, "use_bias": False, "n_group": 1}
    for key, fine in refused.items():
        if config.get(key, fine) != fine:
            return f"{key} is {config[key]}"
    return problem_of_steps(config)
