// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits qwen3() {
  FamilyTraits traits = qwen2();
  traits.family = Family::qwen3;
  traits.model_type = "qwen3";
  traits.architectures = {"Qwen3ForCausalLM"};
  traits.examples = "Qwen3 (dense), Qwen3-Embedding, Qwen3-Reranker";
  traits.beyond = "norms of each head's q and k";
  traits.head_dim = 128;
  traits.bias_key = "attention_bias";
  traits.bias_default = false;
  traits.bias_on_output = true;
  traits.qk_norm = QkNorm::each_head;
  traits.names.q_norm = "self_attn.q_norm";
  traits.names.k_norm = "self_attn.k_norm";
  return traits;
}

}  // namespace pecia::model::families
