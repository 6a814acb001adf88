# SPDX-License-Identifier: Apache-2.0
"""Models that read a checkpoint wrongly in one way, for verify.py."""

from collections.abc import Iterator

import torch

import internlm2
import oracle
from cases import Case, Config
from oracle import Tensors

SCALINGS: dict[str, Config] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "llama3": {
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 64},
}


def models(case: Case, weights: Tensors) -> Iterator[tuple[str, Config, Tensors]]:
    """Each with one thing read wrongly, and what that is."""
    config = case.oracle_config
    for what, keys in wrong_keys(config):
        yield what, config | keys, weights
    for what, tensors in wrong_weights(config, weights):
        yield what, config, weights | tensors
    if case.config["model_type"] == "internlm2":
        yield "wqkv taken for q, k and v in turn", config, packed_in_turn(case, weights)


def wrong_keys(config: Config) -> Iterator[tuple[str, Config]]:
    eps = "layer_norm_epsilon" if "layer_norm_epsilon" in config else "rms_norm_eps"
    yield f"{eps} 1e-6", {eps: 1e-6}
    if "rope_theta" in config and rotates(config):
        yield "rope_theta doubled", {"rope_theta": 2 * config["rope_theta"]}
    lists = "short_factor" in (config.get("rope_scaling") or {})  # one factor for each pair
    if "partial_rotary_factor" in config and not lists:
        yield "whole heads rotated", {"partial_rotary_factor": 1.0}
    if "rotary_dim" in config:
        yield "whole heads rotated", {"rotary_dim": config["head_dim"]}
    if "kv_lora_rank" in config:
        interleaved = config.get("rope_interleave", True)
        yield "halves and neighbours exchanged", {"rope_interleave": not interleaved}
    yield from wrong_scalings(config)
    yield from wrong_windows(config)
    yield from wrong_multipliers(config)
    yield from wrong_routers(config)
    if config["model_type"] == "gemma4_text":
        yield from wrong_rotations(config)


def rotates(config: Config) -> bool:
    return config["model_type"] != "nemotron_h" and config.get("position_embedding_type") != "nope"


def wrong_rotations(config: Config) -> Iterator[tuple[str, Config]]:
    """Of layers with a window and of others, which have their own."""
    full: Config = dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.25)
    sliding: Config = dict(rope_type="default", rope_theta=10000.0)
    given = config.get("rope_parameters", {})
    full, sliding = given.get("full_attention", full), given.get("sliding_attention", sliding)
    share = full["partial_rotary_factor"]
    for what, a, b in (
        ("whole heads rotated", full | {"partial_rotary_factor": 1.0}, sliding),
        ("another share rotated", full | {"partial_rotary_factor": 3 * share / 2}, sliding),
        ("one base for all", full | {"rope_theta": sliding["rope_theta"]}, sliding),
        ("the other base for all", full, sliding | {"rope_theta": full["rope_theta"]}),
    ):
        yield what, {"rope_parameters": {"full_attention": a, "sliding_attention": b}}


def wrong_multipliers(config: Config) -> Iterator[tuple[str, Config]]:
    others: Config = {
        "attention_multiplier": 0.25,  # head_dim^-½
        "embedding_multiplier": 1.0,
        "residual_multiplier": 1.0,
        "logits_scaling": 1.0,
        "query_pre_attn_scalar": 16,
        "rope_local_base_freq": 1000000.0,
        "hidden_activation": "silu",
        "attn_temperature_tuning": False,
        "attn_scale": 0.1,
        "floor_scale": 8192,
        "use_qk_norm": not config.get("use_qk_norm"),
        "final_logit_softcapping": None,
    }
    for key, value in others.items():
        if key in config:
            yield f"{key} {value}", {key: value}
    if "no_rope_layers" in config:
        opposite = [1 - rotated for rotated in config["no_rope_layers"]]
        yield "rotated and other layers exchanged", {"no_rope_layers": opposite}


def wrong_routers(config: Config) -> Iterator[tuple[str, Config]]:
    key = "top_k_experts" if "top_k_experts" in config else "num_experts_per_tok"
    if not config.get(key):
        return
    taken = config[key]
    yield "one expert more", {key: taken + 1}
    yield "one expert less", {key: taken - 1}
    if "norm_topk_prob" in config:
        yield "weights of the other sum", {"norm_topk_prob": not config["norm_topk_prob"]}
    if config.get("n_group", 1) > 1:
        yield "no groups of experts", {"n_group": 1, "topk_group": 1}
        yield "other groups of experts", {"n_group": config["n_group"] // 2}
    others: Config = {"routed_scaling_factor": 1.0, "route_scale": 1.0, "mup_enabled": False}
    for key, value in others.items():
        if key in config:
            yield f"{key} {value}", {key: value}


def wrong_scalings(config: Config) -> Iterator[tuple[str, Config]]:
    scaling = config.get("rope_scaling")
    if scaling is None:
        return
    kind = scaling.get("rope_type") or scaling["type"]
    if kind == "longrope":
        short, long = scaling["short_factor"], scaling["long_factor"]
        yield "short factors for all", {"rope_scaling": scaling | {"long_factor": short}}
        yield "long factors for all", {"rope_scaling": scaling | {"short_factor": long}}
        longer = 4 * config["max_position_embeddings"]
        yield "another attention factor", {"max_position_embeddings": longer}
        return
    needed = {}
    if "llama_4_scaling_beta" in scaling:
        keys_of_all = ("llama_4_scaling_beta", "original_max_position_embeddings")
        needed = {key: scaling[key] for key in keys_of_all}
    of_a_part = "partial_rotary_factor" in scaling  # which other kinds do not read
    for other, keys in SCALINGS.items():
        if other != kind and not of_a_part:
            wrong = {"rope_type": other, **keys, **needed}
            yield f"rope scaling {other}", {"rope_scaling": wrong}
    kept = {key: value for key, value in scaling.items() if key != "type"} | {"rope_type": kind}
    changes: list[Config] = [{"factor": scaling["factor"] + 1}]
    if kind == "llama3":
        changes += [{"low_freq_factor": 2.0}, {"high_freq_factor": 2.0}]
    if kind == "yarn":
        changes += [{"attention_factor": 1.0}, {"original_max_position_embeddings": 1024}]
        defaults: Config = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}
        defaults |= {"mscale": None, "attention_factor": None}
        if "kv_lora_rank" in config:  # it scales all scores, too
            defaults |= {"mscale_all_dim": None}
        changes += [{key: default} for key, default in defaults.items() if key in scaling]
    if needed:
        changes += [{"llama_4_scaling_beta": 0.0}]
    for change in changes:
        yield f"rope scaling with {change}", {"rope_scaling": kept | change}


def wrong_windows(config: Config) -> Iterator[tuple[str, Config]]:
    chunk = config.get("attention_chunk_size")
    if chunk is not None:
        yield "no chunks", {"attention_chunk_size": 4096}
        yield "chunk one longer", {"attention_chunk_size": chunk + 1}
    window = config.get("sliding_window")
    if window is None:
        return
    if window > config["max_position_embeddings"]:
        return
    if config["model_type"] == "gemma4_text":  # types of layers decide their heads, too
        yield "window one wider", {"sliding_window": window + 1}
        yield "window one narrower", {"sliding_window": window - 1}
        return
    if "layer_types" in config:
        yield "no window", {"layer_types": ["full_attention"] * len(config["layer_types"])}
        yield "layer types reversed", {"layer_types": config["layer_types"][::-1]}
        yield "window one wider", {"sliding_window": window + 1}
        yield "window one narrower", {"sliding_window": window - 1}
        return
    if config.get("use_sliding_window") is False:
        yield "the unused window used", {"use_sliding_window": True, "max_window_layers": 0}
        return
    switch = {"use_sliding_window": False} if "use_sliding_window" in config else {}
    yield "no window", {"sliding_window": None, **switch}
    yield "window one wider", {"sliding_window": window + 1}
    yield "window one narrower", {"sliding_window": window - 1}
    if "max_window_layers" in config:
        yield "window in every layer", {"max_window_layers": 0}
        yield "window in the lower layer", {"layer_types": ["sliding_attention", "full_attention"]}


def wrong_weights(config: Config, weights: Tensors) -> Iterator[tuple[str, Tensors]]:
    for norm in (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
        "pre_mlp_layernorm",
        "post_mlp_layernorm",
        ".attention_layernorm",
        ".feedforward_layernorm",
        "model.norm",
        "model.norm_f",
        "q_norm",
        "k_norm",
        "q_a_layernorm",
        "kv_a_layernorm",
        "pre_feedforward_layernorm_2",
        "post_feedforward_layernorm_1",
        "post_feedforward_layernorm_2",
        "post_per_layer_input_norm",
        "per_layer_projection_norm",
    ):
        if found := named(f"{norm}.weight", weights):
            yield f"{norm} of ones", {name: torch.ones_like(x) for name, x in found.items()}
    for projection in ("q", "k", "v", "o", "gate", "up", "down", "q_a"):
        if found := named(f"{projection}_proj.bias", weights):
            yield f"no {projection} bias", {name: torch.zeros_like(x) for name, x in found.items()}
    if found := named("kv_a_proj_with_mqa.bias", weights):
        yield "no bias of latents", {name: torch.zeros_like(x) for name, x in found.items()}
    if sinks := named("self_attn.sinks", weights):
        yield "no sinks", {name: torch.full_like(x, -1e4) for name, x in sinks.items()}
        yield "sinks of other heads", {name: x.flip(0) for name, x in sinks.items()}
    for bias in ("mlp.router.bias", "gate_up_proj_bias", "down_proj_bias"):
        if found := named(bias, weights):
            yield f"no {bias}", {name: torch.zeros_like(x) for name, x in found.items()}
    for bias in ("e_score_correction_bias", "mlp.expert_bias"):
        if found := named(bias, weights):
            yield f"no {bias}", {name: torch.zeros_like(x) for name, x in found.items()}
    for scale in ("layer_scalar", "router.scale", "router.per_expert_scale"):
        if found := named(scale, weights):
            yield f"{scale} of ones", {name: torch.ones_like(x) for name, x in found.items()}
    for part in ("embed_tokens_per_layer", "per_layer_model_projection", "per_layer_projection."):
        if found := named(part, weights):
            yield f"no {part}", {name: torch.zeros_like(x) for name, x in found.items()}
    shared = named("shared_experts.down_proj", weights) | named("shared_expert.down_proj", weights)
    if shared:
        yield "no shared expert", {name: torch.zeros_like(x) for name, x in shared.items()}
    if gates := named("shared_expert_gate", weights):
        yield "no gate of the shared expert", {n: torch.zeros_like(x) for n, x in gates.items()}
    if gates := named("self_attn.gate_proj", weights):
        yield "no gates of attention", {name: torch.zeros_like(x) for name, x in gates.items()}
    routers = named("mlp.gate.", weights) | named("block_sparse_moe.gate.", weights)
    routers |= named("mlp.router.gate.", weights) | named("feed_forward.router.", weights)
    routers |= named("block_sparse_moe.router.", weights) | named("mixer.gate.weight", weights)
    if routers:
        yield "experts reversed", {name: x.flip(0) for name, x in routers.items()}
    if exchanged := with_gate_and_up_exchanged(weights, config["model_type"] == "gpt_oss"):
        yield "gate and up exchanged", exchanged
    yield from wrong_xielu(weights)
    yield from wrong_recurrences(config, weights)
    if "kv_lora_rank" in config:
        yield "all keys above all values", with_keys_above_values(config, weights)
        return

    def heads(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.unflatten(0, (-1, oracle.head_dim_of(config)))

    keys, values = named("k_proj", weights), named("v_proj", weights)
    if config.get("num_key_value_heads") != 1:
        flipped = {name: heads(x).flip(0).flatten(0, 1) for name, x in (keys | values).items()}
        yield "KV heads reversed", flipped
    rotated = keys | named("q_proj", weights) | named("q_norm", weights) | named("k_norm", weights)
    order = other_pairs(config)
    exchanged = {name: heads(x)[:, order].flatten(0, 1) for name, x in rotated.items()}
    if exchanged and rotates(config):
        yield "rotated halves and neighbours exchanged", exchanged


def with_keys_above_values(config: Config, weights: Tensors) -> Tensors:
    """What kv_b is of a reader who takes it for the keys of all heads, then their values."""
    heads, keys = config["num_attention_heads"], config["qk_nope_head_dim"]
    exchanged: Tensors = {}
    for name, tensor in named("kv_b_proj", weights).items():
        above, below = tensor.split([heads * keys, len(tensor) - heads * keys])
        parts = [above.unflatten(0, (heads, -1)), below.unflatten(0, (heads, -1))]
        exchanged[name] = torch.cat(parts, 1).flatten(0, 1)
    return exchanged


def wrong_xielu(weights: Tensors) -> Iterator[tuple[str, Tensors]]:
    for constant, other in (("alpha_p", 0.0), ("alpha_n", 0.0), ("beta", 0.5), ("eps", -1e-6)):
        if found := named(f"act_fn.{constant}", weights):
            yield f"{constant} {other}", {n: torch.full_like(x, other) for n, x in found.items()}


def wrong_recurrences(config: Config, weights: Tensors) -> Iterator[tuple[str, Tensors]]:
    for what, part, read in (
        ("no decay", ".A_log", lambda x: torch.full_like(x, -30.0)),
        ("decays of other heads", ".A_log", lambda x: x.flip(0)),
        ("no bias of steps", ".dt_bias", torch.zeros_like),
        ("convolution backwards", ".conv1d.weight", lambda x: x.flip(2)),
        ("no bias of the convolution", ".conv1d.bias", torch.zeros_like),
        ("nothing skips the recurrence", ".D", torch.zeros_like),
        ("norm of ones after the recurrence", "linear_attn.norm.", torch.ones_like),
        ("1 added to that norm", "linear_attn.norm.", lambda x: x + 1),
        ("norm of ones after the recurrence", "mamba.norm.", torch.ones_like),
        ("norm of ones after the recurrence", "mixer.norm.", torch.ones_like),
    ):
        if found := named(part, weights):
            yield what, {name: read(tensor) for name, tensor in found.items()}
    if exchanged := with_rows_in_turn(config, weights):
        yield "rows of all heads in turn for rows by head", exchanged


def with_rows_in_turn(config: Config, weights: Tensors) -> Tensors:
    """Of a reader who takes queries and gates, and packs by key head, for all of the first, and so on."""
    if "linear_conv_kernel_dim" not in config:
        return {}
    read: Tensors = {}
    for name, tensor in named("self_attn.q_proj.", weights).items():
        queries, gates = tensor.chunk(2)
        heads = config["num_attention_heads"]
        read[name] = torch.stack(
            [queries.unflatten(0, (heads, -1)), gates.unflatten(0, (heads, -1))], 1
        )
        read[name] = read[name].flatten(0, 2)
    key_heads, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    keys, values = config["linear_key_head_dim"], config["linear_value_head_dim"]
    sizes = [key_heads * keys] * 2 + [heads * values] * 2
    for name, tensor in named("in_proj_qkvz.", weights).items():
        parts = [part.unflatten(0, (key_heads, -1)) for part in tensor.split(sizes)]
        read[name] = torch.cat(parts, 1).flatten(0, 1)
    for name, tensor in named("in_proj_ba.", weights).items():
        parts = [part.unflatten(0, (key_heads, -1)) for part in tensor.chunk(2)]
        read[name] = torch.cat(parts, 1).flatten(0, 1)
    return read


def named(part: str, weights: Tensors) -> Tensors:
    return {name: tensor for name, tensor in weights.items() if part in name}


def with_gate_and_up_exchanged(weights: Tensors, fused_in_turn: bool) -> Tensors:
    packed = named("gate_up_proj", weights)
    columns = -1 if named("feed_forward.experts", weights) else -2  # Llama 4 has inputs first
    in_turn = named("experts.gate_up_proj", weights) if fused_in_turn else {}
    exchanged = {n: x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2) for n, x in in_turn.items()}
    exchanged |= {
        n: torch.cat(x.chunk(2, dim=columns)[::-1], dim=columns)
        for n, x in packed.items()
        if n not in in_turn
    }
    for gate in named(".gate_proj", weights) | named(".w1.", weights):
        if "self_attn" in gate:
            continue
        up = gate.replace("gate", "up").replace(".w1.", ".w3.")
        exchanged |= {gate: weights[up], up: weights[gate]}
    return exchanged


def other_pairs(config: Config) -> list[int]:
    """The order of a head's rows that makes transformers rotate neighbours where it rotates halves,
    or for GLM and Llama 4, where it rotates neighbours, halves."""
    head_dim = oracle.head_dim_of(config)
    rotary_dim = int(head_dim * config.get("partial_rotary_factor", 1))
    rotary_dim = config.get("rotary_dim", rotary_dim)
    order = [*range(0, rotary_dim, 2), *range(1, rotary_dim, 2)]
    if config["model_type"] in ("glm", "llama4_text"):
        order = sorted(range(rotary_dim), key=order.__getitem__)
    return order + list(range(rotary_dim, head_dim))


def packed_in_turn(case: Case, weights: Tensors) -> Tensors:
    """The weights of a reader who takes InternLM2's wqkv for all of q, then k, then v."""
    kv_heads, group, head_dim = internlm2.head_shape(case.config)
    rows = [kv_heads * group * head_dim, kv_heads * head_dim, kv_heads * head_dim]
    wrong = dict(weights)
    for name, tensor in internlm2.pack(weights, case.config).items():
        if "wqkv" in name:
            for letter, part in zip("qkv", tensor.split(rows), strict=True):
                wrong[name.replace("attention.wqkv", f"self_attn.{letter}_proj")] = part
    return wrong
