# SPDX-License-Identifier: Apache-2.0
"""What config.json says of hybrids, in the keys of each family."""

from __future__ import annotations

import argparse

from .model_hybrids import CONV, is_recurrent, kinds_of_layers, shared_ffn

ROTATED = 0.25  # of a head, in layers that attend beside a delta net


def hybrid_configuration(options: argparse.Namespace) -> dict[str, object]:
    """What differs from a dense model."""
    if options.delta_net:
        return delta_net_configuration(options)
    return nemotron_h_configuration(options) if options.nemotron_h else granite_configuration(options)


def delta_net_configuration(options: argparse.Namespace) -> dict[str, object]:
    net = options.delta_net
    kinds = ["linear" if is_recurrent(options, layer) else "full" for layer in range(options.layers)]
    rope: dict[str, object] = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": ROTATED}
    common: dict[str, object] = {
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e7,
        "layer_types": [f"{kind}_attention" for kind in kinds],
        "linear_conv_kernel_dim": CONV,
        "linear_key_head_dim": net.dim,
        "linear_num_key_heads": net.key_heads,
        "linear_num_value_heads": net.heads,
        "linear_value_head_dim": net.dim,
    }
    if not options.experts:
        pairs = int(options.head_dim * ROTATED) // 2
        rope |= {"mrope_interleaved": True, "mrope_section": [(pairs + 2 - i) // 3 for i in range(3)]}
        names = {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text"}
        return {**common, **names, "rope_parameters": rope}
    return {
        **common,
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "rope_parameters": rope,
        "moe_intermediate_size": options.ffn,
        "shared_expert_intermediate_size": shared_ffn(options),
        "num_experts": options.experts,
        "num_experts_per_tok": options.experts_per_token,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def granite_configuration(options: argparse.Namespace) -> dict[str, object]:
    mamba = options.mamba
    return {
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "model_type": "granitemoehybrid",
        "layer_types": ["mamba" if is_recurrent(options, layer) else "attention" for layer in range(options.layers)],
        "position_embedding_type": "nope",
        "attention_bias": False,
        "attention_multiplier": options.head_dim**-0.5,
        "embedding_multiplier": 1.0,
        "residual_multiplier": 1.0,
        "logits_scaling": 1.0,
        "shared_intermediate_size": shared_ffn(options) if options.experts else options.ffn,
        "num_local_experts": options.experts,
        "num_experts_per_tok": options.experts_per_token if options.experts else 0,
        "mamba_chunk_size": 256,
        "mamba_conv_bias": True,
        "mamba_d_conv": CONV,
        "mamba_d_head": mamba.dim,
        "mamba_d_state": mamba.state,
        "mamba_expand": mamba.heads * mamba.dim // options.hidden,
        "mamba_n_groups": mamba.groups,
        "mamba_n_heads": mamba.heads,
        "mamba_proj_bias": False,
    }


def nemotron_h_configuration(options: argparse.Namespace) -> dict[str, object]:
    mamba = options.mamba
    found: dict[str, object] = {
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        "hybrid_override_pattern": kinds_of_layers(options),
        "intermediate_size": options.dense_ffn,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": False,  # transformers does not tie them, whatever it says
        "attention_bias": False,
        "mlp_bias": False,
        "mlp_hidden_act": "relu2",
        "chunk_size": 128,
        "conv_kernel": CONV,
        "expand": 2,
        "mamba_head_dim": mamba.dim,
        "mamba_hidden_act": "silu",
        "mamba_num_heads": mamba.heads,
        "n_groups": mamba.groups,
        "ssm_state_size": mamba.state,
        "use_bias": False,
        "use_conv_bias": True,
    }
    if options.experts:
        found |= {
            "moe_intermediate_size": options.ffn,
            "moe_shared_expert_intermediate_size": shared_ffn(options),
            "n_routed_experts": options.experts,
            "n_shared_experts": 1,
            "num_experts_per_tok": options.experts_per_token,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.0,
        }
    return found
