// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The families, a file each: what its configuration class in transformers takes for keys that
/// config.json omits, what its model code fixes, and the names of its tensors. What several have in
/// common is a function.

#include "lib/model/config/family.hpp"

namespace pecia::model::families {

FamilyTraits llama();
FamilyTraits mistral();
FamilyTraits ministral();
FamilyTraits ministral3();
FamilyTraits qwen2();
FamilyTraits qwen3();
FamilyTraits glm();
FamilyTraits internlm2();
FamilyTraits granite();
FamilyTraits smollm3();
FamilyTraits phi3();
FamilyTraits olmo2();
FamilyTraits olmo3();
FamilyTraits gemma3();
FamilyTraits qwen3_moe();
FamilyTraits mixtral();
FamilyTraits olmoe();
FamilyTraits gpt_oss();
FamilyTraits apertus();
FamilyTraits glm4_moe();
FamilyTraits minimax_m2();
FamilyTraits afmoe();
FamilyTraits deepseek_v3();
FamilyTraits glm4_moe_lite();
FamilyTraits mistral4();
FamilyTraits llama4_text();
FamilyTraits qwen2_moe();
FamilyTraits gemma4();
FamilyTraits qwen3_next();
FamilyTraits qwen3_5();
FamilyTraits qwen3_5_moe();
FamilyTraits granitemoehybrid();
FamilyTraits nemotron_h();

/// What routers of sigmoids and shared experts have in common: keys of config.json, and names of
/// tensors under "mlp".
void add_sigmoid_experts(FamilyTraits& traits);
/// What Qwen's families with gated delta nets have in common, but for the names of packed matrices.
void add_delta_net(FamilyTraits& traits);
/// The names of the tensors of latent attention.
void add_latent_names(WeightNames& names);

}  // namespace pecia::model::families
