# SPDX-License-Identifier: Apache-2.0
"""config.json of the models that make-bench-model makes."""

from __future__ import annotations

import argparse

from .model_hybrid_config import hybrid_configuration
from .model_hybrids import is_hybrid
from .model_numbers import NVFP4_BLOCK

CONTEXT = 1 << 20  # position limit of the configuration; no cost hangs on it


def configuration(options: argparse.Namespace) -> dict[str, object]:
    dense = dense_configuration(options) | (nvfp4_configuration() if options.nvfp4 else {})
    if is_hybrid(options):
        return dense | hybrid_configuration(options)
    if options.kv_rank:
        # No head_dim: it means something else in each of these families, and transformers computes it.
        return {key: value for key, value in dense.items() if key != "head_dim"} | latent_configuration(options)
    if options.full_head_dim:
        return dense | own_heads_configuration(options)
    if not options.experts:
        return dense
    if options.gpt_oss:
        return dense | gpt_oss_configuration(options)
    if options.llama_4:
        return dense | llama_4_configuration(options)
    if options.glm_4:
        return dense | glm_4_configuration(options)
    return dense | {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "moe_intermediate_size": options.ffn,
        "num_experts": options.experts,
        "num_experts_per_tok": options.experts_per_token,
        "norm_topk_prob": True,
        "use_sliding_window": False,
    }


def nvfp4_configuration() -> dict[str, object]:
    weights = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": NVFP4_BLOCK}
    return {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "nvfp4-pack-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
            "ignore": ["lm_head"],
        }
    }


def shared_configuration(options: argparse.Namespace) -> dict[str, object]:
    """Of experts with shared ones, in layers behind dense ones."""
    return {
        "intermediate_size": options.dense_ffn,
        "moe_intermediate_size": options.ffn,
        "n_routed_experts": max(options.experts, 2),
        "num_experts_per_tok": options.experts_per_token,
        "n_shared_experts": options.shared_experts,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": options.dense_layers if options.experts else options.layers,
        "norm_topk_prob": True,
    }


def glm_4_configuration(options: argparse.Namespace) -> dict[str, object]:
    return {
        **shared_configuration(options),
        "architectures": ["Glm4MoeForCausalLM"],
        "model_type": "glm4_moe",
        "attention_bias": True,
        "partial_rotary_factor": 0.5,
        "routed_scaling_factor": 1.0,
        "use_qk_norm": False,
    }


def latent_configuration(options: argparse.Namespace) -> dict[str, object]:
    return {
        **shared_configuration(options),
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_key_value_heads": options.heads,
        "q_lora_rank": options.q_rank or None,
        "kv_lora_rank": options.kv_rank,
        "qk_nope_head_dim": options.head_dim,
        "qk_rope_head_dim": options.rope_dim,
        "v_head_dim": options.value_dim,
        **(mistral_4_configuration() if options.mistral_4 else {}),
    }


def mistral_4_configuration() -> dict[str, object]:
    return {
        "architectures": ["Mistral4ForCausalLM"],
        "model_type": "mistral4",
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 128.0,
            "original_max_position_embeddings": CONTEXT // 128,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    }


def llama_4_configuration(options: argparse.Namespace) -> dict[str, object]:
    return {
        "architectures": ["Llama4ForCausalLM"],
        "model_type": "llama4_text",
        "intermediate_size_mlp": options.ffn,
        "num_local_experts": options.experts,
        "num_experts_per_tok": options.experts_per_token,
        "attention_chunk_size": 8192,
    }


def own_heads_configuration(options: argparse.Namespace) -> dict[str, object]:
    return {
        "architectures": ["Gemma4ForCausalLM"],
        "model_type": "gemma4_text",
        "hidden_act": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_theta": None,
        "global_head_dim": options.full_head_dim,
        "num_global_key_value_heads": options.full_kv_heads,
        "attention_k_eq_v": True,
        "hidden_size_per_layer_input": 0,
        "sliding_window": options.window,
    }


def gpt_oss_configuration(options: argparse.Namespace) -> dict[str, object]:
    kinds = ["sliding_attention", "full_attention"]
    return {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "num_local_experts": options.experts,
        "num_experts_per_tok": options.experts_per_token,
        "attention_bias": True,
        "layer_types": [kinds[layer % 2] for layer in range(options.layers)],
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "rope_theta": 150000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
        },
        "quantization_config": {"quant_method": "mxfp4"},
    }


def dense_configuration(options: argparse.Namespace) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": options.vocab,
        "hidden_size": options.hidden,
        "intermediate_size": options.ffn,
        "num_hidden_layers": options.layers,
        "num_attention_heads": options.heads,
        "num_key_value_heads": options.kv_heads,
        "head_dim": options.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
        "seed": options.seed,
    }
