# SPDX-License-Identifier: Apache-2.0
"""What a GGUF file holds of families whose layers all attend: tensors, and what the header says beside the sizes that
all families have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf import ExpertGatingFuncType, GGUFWriter, RopeScalingType

from .weights import LAYER, TOP

Config = dict[str, Any]
Values = np.ndarray

DENSE = ("ffn_gate", "ffn_up", "ffn_down")
ATTENTION = {
    part: LAYER[part] for part in LAYER if part not in DENSE
}  # with the norms before both blocks
QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
LATENT = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_output": "self_attn.o_proj",
}
LATENT_QUERIES = {
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
}


@dataclass(frozen=True)
class Part:
    """A tensor of the file: `make` of a tensor of the checkpoint, or of several that are stacked."""

    name: str
    sources: Sequence[str]
    make: Callable[[Values], Values] = lambda values: values
    is_stack: bool = False


def kv_heads(config: Config) -> int:
    return int(config.get("num_key_value_heads") or config["num_attention_heads"])


def head_dim(config: Config) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def of_rotation(config: Config, key: str, default: float) -> float:
    """transformers 5 has it in rope_parameters, and 4 had it at the top."""
    inner = config.get("rope_parameters") or {}
    return float(inner[key] if key in inner else config.get(key, default))


def pairs_from_halves(weight: Values, num_heads: int) -> Values:
    """The way back from gguf.weights.halves_from_pairs."""
    half = weight.shape[0] // num_heads // 2
    return weight.reshape(num_heads, 2, half, -1).swapaxes(1, 2).reshape(weight.shape)


def weights_of(names: dict[str, str]) -> Iterator[Part]:
    for part, source in names.items():
        yield Part(f"{part}.weight", [f"{source}.weight"])


def top_names(config: Config, names: dict[str, str] = TOP) -> dict[str, str]:
    """Of what is outside layers."""
    tied = config.get("tie_word_embeddings")
    return {top: source for top, source in names.items() if top != "output" or not tied}


def gated(part: str, source: str) -> dict[str, str]:
    """Of ffn_{}, ffn_{}_shexp or ffn_{}_exps, from mlp.{}_proj or what holds them."""
    return {part.format(one): source.format(one) for one in ("gate", "up", "down")}


def experts(count: int) -> Iterator[Part]:
    """Of `count` experts with tensors of their own."""
    for one in ("gate", "up", "down"):
        sources = [f"mlp.experts.{expert}.{one}_proj.weight" for expert in range(count)]
        yield Part(f"ffn_{one}_exps.weight", sources, is_stack=True)


def plain_layer(config: Config, _: int) -> Iterator[Part]:
    turned = {"attn_q": config["num_attention_heads"], "attn_k": kv_heads(config)}
    for part in weights_of(LAYER):
        heads = turned.get(part.name.removesuffix(".weight"))
        if heads is None:
            yield part
        else:
            yield Part(part.name, part.sources, lambda x, heads=heads: pairs_from_halves(x, heads))  # type: ignore[misc]


def mixture_layer(config: Config, _: int) -> Iterator[Part]:
    yield from weights_of({**ATTENTION, **QK_NORMS, "ffn_gate_inp": "mlp.gate"})
    yield from experts(config["num_experts"])


def sigmoid_layer(config: Config, layer: int) -> Iterator[Part]:
    names = {**ATTENTION, "post_attention_norm": ATTENTION["ffn_norm"]}
    del names["ffn_norm"]
    yield from weights_of(names)
    if config.get("use_qk_norm"):
        yield from weights_of(QK_NORMS)
    for one in ("q", "k", "v") if config.get("attention_bias") else ():
        yield Part(f"attn_{one}.bias", [f"self_attn.{one}_proj.bias"])
    yield from feed_forward(config, layer)


def feed_forward(config: Config, layer: int) -> Iterator[Part]:
    """Dense in the first layers, then experts of their own, or all in one tensor (Mistral 4), and shared ones."""
    if layer < config["first_k_dense_replace"]:
        yield from weights_of(gated("ffn_{}", "mlp.{}_proj"))
        return
    yield from weights_of({"ffn_gate_inp": "mlp.gate"})
    if config["model_type"] == "mistral4":
        ffn = config["moe_intermediate_size"]
        both = ["mlp.experts.gate_up_proj"]
        yield Part("ffn_gate_exps.weight", both, lambda x: x[:, :ffn])
        yield Part("ffn_up_exps.weight", both, lambda x: x[:, ffn:])
        yield Part("ffn_down_exps.weight", ["mlp.experts.down_proj"])
    else:
        yield Part("exp_probs_b.bias", ["mlp.gate.e_score_correction_bias"])
        yield from experts(config["n_routed_experts"])
    if config["n_shared_experts"]:
        yield from weights_of(gated("ffn_{}_shexp", "mlp.shared_experts.{}_proj"))


def latent_layer(config: Config, layer: int) -> Iterator[Part]:
    """llama.cpp attends latents alone: it wants K_h transposed and V_h of each head."""
    yield from weights_of(LATENT)
    ranked = config.get("q_lora_rank")
    yield from weights_of(LATENT_QUERIES if ranked else {"attn_q": "self_attn.q_proj"})
    nope = config["qk_nope_head_dim"]
    rows = (config["num_attention_heads"], nope + config["v_head_dim"], config["kv_lora_rank"])
    both = ["self_attn.kv_b_proj.weight"]
    yield Part("attn_k_b.weight", both, lambda x: x.reshape(rows)[:, :nope].swapaxes(1, 2))
    yield Part("attn_v_b.weight", both, lambda x: x.reshape(rows)[:, nope:])
    yield from feed_forward(config, layer)


def describe_mixture(writer: GGUFWriter, config: Config) -> None:
    writer.add_expert_count(config["num_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def describe_shared(writer: GGUFWriter, config: Config) -> None:
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_weights_scale(config.get("routed_scaling_factor", 1.0))
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    by_softmax = config["model_type"] == "mistral4"
    gating = ExpertGatingFuncType.SOFTMAX if by_softmax else ExpertGatingFuncType.SIGMOID
    writer.add_expert_gating_func(gating)


def describe_latents(writer: GGUFWriter, config: Config) -> None:
    describe_shared(writer, config)
    if config.get("q_lora_rank"):
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(config["kv_lora_rank"])
    writer.add_key_length_mla(config["qk_nope_head_dim"] + config["qk_rope_head_dim"])
    writer.add_value_length_mla(config["v_head_dim"])
    scaling = config.get("rope_parameters", {})
    if scaling.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(scaling["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(scaling["beta_slow"])
        writer.add_rope_scaling_yarn_log_mul(0.1 * scaling["mscale_all_dim"])


def problem_of_mixture(config: Config) -> str:
    some_dense = config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1
    return "some layers have no experts" if some_dense else ""


def problem_of_shared(config: Config) -> str:
    if config.get("n_group", 1) != 1:
        return f"experts are in {config['n_group']} groups"
    return (
        "no layer has experts"
        if config["first_k_dense_replace"] >= config["num_hidden_layers"]
        else ""
    )
