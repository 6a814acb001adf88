// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The families, a file each: what its configuration class in transformers takes for keys that
/// config.json omits, what its model code fixes, and the names of its tensors.

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

}  // namespace pecia::model::families
