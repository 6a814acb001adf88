// SPDX-License-Identifier: Apache-2.0
#include "lib/model/config/presets.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "lib/base/core/error.hpp"
#include "lib/base/core/meant.hpp"

namespace pecia::model {
namespace {

/// What counts of the model's config.json, in bf16 as published.
struct Preset {
  std::string_view name, config;
};

/// Llama 3.3 has the shape and the positions of 3.1.
constexpr std::string_view llama_3_1_70b =
    R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 8192,
    "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192},
    "torch_dtype": "bfloat16", "eos_token_id": [128001, 128008, 128009]})";

/// Some papers leave out the 1.
constexpr std::string_view llama_3_1_405b =
    R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 16384,
    "intermediate_size": 53248, "num_hidden_layers": 126, "num_attention_heads": 128,
    "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192},
    "torch_dtype": "bfloat16", "eos_token_id": [128001, 128008, 128009]})";

/// What the gated delta nets of Qwen have in common. Source: config.json of
/// Qwen/Qwen3-Next-80B-A3B-Instruct, Qwen/Qwen3.5-9B and Qwen/Qwen3.5-27B on Hugging Face.
#define PECIA_QWEN_DELTA_NET                                                       \
  R"(, "head_dim": 256, "full_attention_interval": 4, "linear_num_key_heads": 16)" \
  R"(, "linear_key_head_dim": 128, "linear_value_head_dim": 128)"                  \
  R"(, "linear_conv_kernel_dim": 4, "partial_rotary_factor": 0.25)"                \
  R"(, "rope_theta": 10000000.0, "max_position_embeddings": 262144)"               \
  R"(, "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16"})"

/// Layers of Granite 4. Source: config.json of ibm-granite/granite-4.0-h-tiny on Hugging Face.
#define PECIA_MAMBA_4 R"("mamba", "mamba", "mamba", "mamba")"
#define PECIA_MAMBA_5 PECIA_MAMBA_4 R"(, "mamba")"
#define PECIA_ATTENTION_AND_MAMBA_4 R"("attention", )" PECIA_MAMBA_4
#define PECIA_ATTENTION_AND_MAMBA_9 PECIA_ATTENTION_AND_MAMBA_4 ", " PECIA_MAMBA_5

constexpr std::array presets{
    Preset{"llama-2-7b",
           R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096,
           "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 32, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
           "rope_theta": 10000.0, "torch_dtype": "bfloat16", "eos_token_id": 2})"},
    Preset{"llama-3-8b",
           R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
           "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
           "rope_theta": 500000.0, "torch_dtype": "bfloat16", "eos_token_id": 128001})"},
    Preset{"llama-3.1-8b",
           R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
           "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
           "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
           "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8192},
           "torch_dtype": "bfloat16", "eos_token_id": [128001, 128008, 128009]})"},
    Preset{"llama-3-70b",
           R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 8192,
           "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
           "num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
           "rope_theta": 500000.0, "torch_dtype": "bfloat16", "eos_token_id": 128001})"},
    Preset{"llama-3.1-70b", llama_3_1_70b},
    Preset{"llama-3.3-70b", llama_3_1_70b},
    Preset{"llama-3-405b", llama_3_1_405b},
    Preset{"llama-3.1-405b", llama_3_1_405b},
    Preset{"qwen2.5-32b",
           R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 5120,
           "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 40,
           "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
           "rope_theta": 1000000.0, "torch_dtype": "bfloat16", "eos_token_id": 151643})"},
    Preset{"glm-4-9b-1m",
           R"({"model_type": "glm", "vocab_size": 151552, "hidden_size": 4096,
           "intermediate_size": 13696, "num_hidden_layers": 40, "num_attention_heads": 32,
           "num_key_value_heads": 4, "head_dim": 128, "attention_bias": true,
           "partial_rotary_factor": 0.5, "max_position_embeddings": 1048576,
           "rms_norm_eps": 1.5625e-07, "rope_theta": 100000000.0, "torch_dtype": "bfloat16",
           "eos_token_id": [151329, 151336, 151338]})"},
    Preset{"internlm2.5-7b-1m",
           R"({"model_type": "internlm2", "vocab_size": 92544, "hidden_size": 4096,
           "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "max_position_embeddings": 262144, "rms_norm_eps": 1e-5,
           "rope_theta": 50000000.0, "rope_scaling": {"type": "dynamic", "factor": 2.5},
           "bias": false, "torch_dtype": "bfloat16", "eos_token_id": [2, 92542]})"},
    Preset{"qwen3-30b-a3b",
           R"({"model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048,
           "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48,
           "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
           "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
           "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
           "torch_dtype": "bfloat16", "eos_token_id": 151645})"},
    Preset{"qwen3-235b-a22b",
           R"({"model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 4096,
           "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_hidden_layers": 94,
           "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128,
           "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
           "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
           "torch_dtype": "bfloat16", "eos_token_id": 151645})"},
    Preset{"mixtral-8x7b",
           R"({"model_type": "mixtral", "vocab_size": 32000, "hidden_size": 4096,
           "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
           "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
           "torch_dtype": "bfloat16", "eos_token_id": 2})"},
    Preset{"gpt-oss-20b",
           R"({"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
           "num_hidden_layers": 24, "num_local_experts": 32, "num_experts_per_tok": 4,
           "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
           "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096},
           "quantization_config": {"quant_method": "mxfp4"},
           "torch_dtype": "bfloat16", "eos_token_id": 200002})"},
    Preset{"gpt-oss-120b",
           R"({"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
           "num_hidden_layers": 36, "num_local_experts": 128, "num_experts_per_tok": 4,
           "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
           "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096},
           "quantization_config": {"quant_method": "mxfp4"},
           "torch_dtype": "bfloat16", "eos_token_id": 200002})"},
    Preset{"gemma-3-12b",
           R"({"model_type": "gemma3_text", "vocab_size": 262208, "hidden_size": 3840,
           "intermediate_size": 15360, "num_hidden_layers": 48, "num_attention_heads": 16,
           "num_key_value_heads": 8, "head_dim": 256, "query_pre_attn_scalar": 256,
           "sliding_window": 1024, "sliding_window_pattern": 6, "rope_local_base_freq": 10000.0,
           "rope_theta": 1000000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
           "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
           "eos_token_id": [1, 106]})"},
    Preset{"gemma-3-27b",
           R"({"model_type": "gemma3_text", "vocab_size": 262208, "hidden_size": 5376,
           "intermediate_size": 21504, "num_hidden_layers": 62, "num_attention_heads": 32,
           "num_key_value_heads": 16, "head_dim": 128, "query_pre_attn_scalar": 168,
           "sliding_window": 1024, "sliding_window_pattern": 6, "rope_local_base_freq": 10000.0,
           "rope_theta": 1000000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
           "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
           "eos_token_id": [1, 106]})"},
    Preset{"gemma-4-31b",
           R"({"model_type": "gemma4_text", "vocab_size": 262144, "hidden_size": 5376,
           "intermediate_size": 21504, "num_hidden_layers": 60, "num_attention_heads": 32,
           "num_key_value_heads": 16, "head_dim": 256, "global_head_dim": 512,
           "num_global_key_value_heads": 4, "attention_k_eq_v": true,
           "hidden_size_per_layer_input": 0, "sliding_window": 1024,
           "final_logit_softcapping": 30.0, "max_position_embeddings": 262144,
           "torch_dtype": "bfloat16", "eos_token_id": [1, 106]})"},
    Preset{"gemma-4-26b-a4b",
           R"({"model_type": "gemma4_text", "vocab_size": 262144, "hidden_size": 2816,
           "intermediate_size": 2112, "moe_intermediate_size": 704, "num_hidden_layers": 30,
           "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
           "global_head_dim": 512, "num_global_key_value_heads": 2, "attention_k_eq_v": true,
           "enable_moe_block": true, "num_experts": 128, "top_k_experts": 8,
           "hidden_size_per_layer_input": 0, "sliding_window": 1024,
           "final_logit_softcapping": 30.0, "max_position_embeddings": 262144,
           "torch_dtype": "bfloat16", "eos_token_id": [1, 106]})"},
    Preset{"gemma-4-e4b",
           R"({"model_type": "gemma4_text", "vocab_size": 262144, "hidden_size": 2560,
           "intermediate_size": 10240, "num_hidden_layers": 42, "num_attention_heads": 8,
           "num_key_value_heads": 2, "head_dim": 256, "global_head_dim": 512,
           "num_kv_shared_layers": 18, "hidden_size_per_layer_input": 256,
           "vocab_size_per_layer_input": 262144, "sliding_window": 512,
           "final_logit_softcapping": 30.0, "max_position_embeddings": 131072,
           "torch_dtype": "bfloat16", "eos_token_id": [1, 106]})"},
    Preset{"glm-4.5-air",
           R"({"model_type": "glm4_moe", "vocab_size": 151552, "hidden_size": 4096,
           "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 46,
           "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
           "n_routed_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 1,
           "first_k_dense_replace": 1, "attention_bias": true, "partial_rotary_factor": 0.5,
           "norm_topk_prob": true, "routed_scaling_factor": 1.0, "num_nextn_predict_layers": 1,
           "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
           "torch_dtype": "bfloat16", "eos_token_id": [151329, 151336, 151338]})"},
    Preset{"minimax-m2",
           R"({"model_type": "minimax_m2", "vocab_size": 200064, "hidden_size": 3072,
           "intermediate_size": 1536, "num_hidden_layers": 62, "num_attention_heads": 48,
           "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 256,
           "num_experts_per_tok": 8, "rotary_dim": 64, "max_position_embeddings": 196608,
           "rms_norm_eps": 1e-6, "rope_theta": 5000000.0, "torch_dtype": "bfloat16",
           "eos_token_id": 200020})"},
    Preset{"deepseek-v3",
           R"({"model_type": "deepseek_v3", "vocab_size": 129280, "hidden_size": 7168,
           "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
           "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536,
           "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
           "v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8,
           "n_shared_experts": 1, "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4,
           "norm_topk_prob": true, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
           "topk_method": "noaux_tc", "num_nextn_predict_layers": 1,
           "max_position_embeddings": 163840, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
           "rope_scaling": {"type": "yarn", "factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0,
           "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096},
           "quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
           "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
           "torch_dtype": "bfloat16", "eos_token_id": 1})"},
    Preset{"glm-4.7-flash",
           R"({"model_type": "glm4_moe_lite", "vocab_size": 154880, "hidden_size": 2048,
           "intermediate_size": 10240, "moe_intermediate_size": 1536, "num_hidden_layers": 47,
           "num_attention_heads": 20, "num_key_value_heads": 20, "q_lora_rank": 768,
           "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
           "v_head_dim": 256, "n_routed_experts": 64, "num_experts_per_tok": 4,
           "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
           "routed_scaling_factor": 1.8, "topk_method": "noaux_tc",
           "num_nextn_predict_layers": 1, "max_position_embeddings": 202752,
           "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "torch_dtype": "bfloat16",
           "eos_token_id": [154820, 154827, 154829]})"},
    Preset{"mistral-small-4",
           R"({"model_type": "mistral4", "vocab_size": 131072, "hidden_size": 4096,
           "intermediate_size": 12288, "moe_intermediate_size": 2048, "num_hidden_layers": 36,
           "num_attention_heads": 32, "num_key_value_heads": 32, "q_lora_rank": 1024,
           "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64,
           "v_head_dim": 128, "n_routed_experts": 128, "num_experts_per_tok": 4,
           "n_shared_experts": 1, "first_k_dense_replace": 0, "norm_topk_prob": true,
           "routed_scaling_factor": 1.0, "max_position_embeddings": 1048576,
           "rms_norm_eps": 1e-6, "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0,
           "factor": 128.0, "original_max_position_embeddings": 8192, "beta_fast": 32.0,
           "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
           "llama_4_scaling_beta": 0.1}, "torch_dtype": "bfloat16", "eos_token_id": 2})"},
    Preset{"llama-4-scout",
           R"({"model_type": "llama4_text", "vocab_size": 202048, "hidden_size": 5120,
           "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_hidden_layers": 48,
           "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
           "num_local_experts": 16, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1,
           "attention_chunk_size": 8192, "attn_temperature_tuning": 4, "floor_scale": 8192,
           "attn_scale": 0.1, "use_qk_norm": true, "no_rope_layers": [],
           "max_position_embeddings": 10485760, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
           "rope_scaling": {"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0,
           "high_freq_factor": 1.0, "original_max_position_embeddings": 8192},
           "torch_dtype": "bfloat16", "eos_token_id": [200001, 200007, 200008]})"},
    Preset{"llama-4-maverick",
           R"({"model_type": "llama4_text", "vocab_size": 202048, "hidden_size": 5120,
           "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_hidden_layers": 48,
           "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
           "num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
           "attention_chunk_size": 8192, "attn_temperature_tuning": 4, "floor_scale": 8192,
           "attn_scale": 0.1, "use_qk_norm": false, "no_rope_layers": [],
           "max_position_embeddings": 1048576, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
           "torch_dtype": "bfloat16", "eos_token_id": [200001, 200007, 200008]})"},
    Preset{"qwen3-next-80b-a3b",
           R"({"model_type": "qwen3_next", "vocab_size": 151936, "hidden_size": 2048,
           "intermediate_size": 5120, "moe_intermediate_size": 512,
           "shared_expert_intermediate_size": 512, "num_hidden_layers": 48,
           "num_attention_heads": 16, "num_key_value_heads": 2, "num_experts": 512,
           "num_experts_per_tok": 10, "norm_topk_prob": true, "linear_num_value_heads": 32,
           "eos_token_id": 151645)" PECIA_QWEN_DELTA_NET},
    Preset{"qwen3.5-9b",
           R"({"model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": 4096,
           "intermediate_size": 12288, "num_hidden_layers": 32, "num_attention_heads": 16,
           "num_key_value_heads": 4, "linear_num_value_heads": 32,
           "eos_token_id": 248044)" PECIA_QWEN_DELTA_NET},
    Preset{"qwen3.5-27b",
           R"({"model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": 5120,
           "intermediate_size": 17408, "num_hidden_layers": 64, "num_attention_heads": 24,
           "num_key_value_heads": 4, "linear_num_value_heads": 48,
           "eos_token_id": 248044)" PECIA_QWEN_DELTA_NET},
    Preset{"granite-4.0-h-tiny",
           R"({"model_type": "granitemoehybrid", "vocab_size": 100352, "hidden_size": 1536,
           "intermediate_size": 512, "shared_intermediate_size": 1024, "num_hidden_layers": 40,
           "layer_types": [)" PECIA_MAMBA_5 "," PECIA_ATTENTION_AND_MAMBA_9
           "," PECIA_ATTENTION_AND_MAMBA_9 "," PECIA_ATTENTION_AND_MAMBA_9
           "," PECIA_ATTENTION_AND_MAMBA_4 R"(],
           "num_attention_heads": 12, "num_key_value_heads": 4, "num_local_experts": 64,
           "num_experts_per_tok": 6, "mamba_n_heads": 48, "mamba_d_head": 64,
           "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_expand": 2, "mamba_d_conv": 4,
           "mamba_conv_bias": true, "position_embedding_type": "nope",
           "tie_word_embeddings": true, "max_position_embeddings": 131072,
           "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16", "eos_token_id": 100257})"},
    // Source: config.json of nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 on Hugging Face.
    Preset{"nemotron-3-nano-30b-a3b",
           R"({"model_type": "nemotron_h", "vocab_size": 131072, "hidden_size": 2688,
           "intermediate_size": 1856, "moe_intermediate_size": 1856,
           "moe_shared_expert_intermediate_size": 3712,
           "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
           "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
           "mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128,
           "conv_kernel": 4, "use_conv_bias": true, "n_routed_experts": 128,
           "num_experts_per_tok": 6, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
           "norm_topk_prob": true, "routed_scaling_factor": 2.5,
           "max_position_embeddings": 262144, "layer_norm_epsilon": 1e-5,
           "torch_dtype": "bfloat16", "eos_token_id": 2})"},
    Preset{"smollm2-135m",
           R"({"model_type": "llama", "vocab_size": 49152, "hidden_size": 576,
           "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
           "num_key_value_heads": 3, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
           "rope_theta": 100000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
           "eos_token_id": 2})"},
};

#undef PECIA_QWEN_DELTA_NET
#undef PECIA_MAMBA_4
#undef PECIA_MAMBA_5
#undef PECIA_ATTENTION_AND_MAMBA_4
#undef PECIA_ATTENTION_AND_MAMBA_9

}  // namespace

std::vector<std::string> model_presets() {
  std::vector<std::string> names;
  for (const Preset& preset : presets) names.emplace_back(preset.name);
  return names;
}

ModelConfig config_of_preset_or_folder(const std::string& preset_or_folder) {
  const auto found = std::ranges::find(presets, preset_or_folder, &Preset::name);
  if (found != presets.end()) return parse_config(std::string(found->config), preset_or_folder);
  if (std::filesystem::exists(preset_or_folder)) return read_config(preset_or_folder);
  std::vector<KnownName> known;
  for (const Preset& preset : presets) known.push_back({std::string(preset.name)});
  const std::vector<std::string> meant = meant_by(preset_or_folder, known);
  if (!meant.empty())
    fail<InputError>("{} is neither a folder nor a model preset; did you mean {}?",
                     preset_or_folder, any_of_text(meant));
  fail<InputError>(
      "{} is neither a folder nor a model preset; name a folder with the model's config.json, or a "
      "preset: {}",
      preset_or_folder, fmt::join(model_presets(), ", "));
}

}  // namespace pecia::model
