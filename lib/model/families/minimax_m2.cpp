// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits minimax_m2() {
  FamilyTraits traits = mixtral();
  traits.family = Family::minimax_m2;
  traits.model_type = "minimax_m2";
  traits.architectures = {"MiniMaxM2ForCausalLM"};
  traits.examples = "MiniMax-M2, MiniMax-M2.1";
  traits.beyond =
      "a mixture of experts chosen by sigmoids and a bias; norms of q and k over all heads; a part "
      "of each head rotated";
  traits.head_dim = 128;
  traits.rms_norm_eps = 1e-6;
  traits.eos_token_ids = {};
  traits.rope_theta = 5e6;
  traits.windows = WindowRule::never;
  traits.qk_norm = QkNorm::all_heads;
  traits.partial_rotation = true;
  traits.rotary_dim_key = "rotary_dim";
  traits.num_experts = 256;
  traits.experts_per_token = 8;
  traits.routing = kernels::Routing::sigmoid;
  traits.known_values = {{"scoring_func", R"("sigmoid")"},
                         {"qk_norm_type", R"("per_layer")"},
                         {"use_qk_norm", "true"},
                         {"use_routing_bias", "true"},
                         {"shared_intermediate_size", "0"}};
  traits.names.q_norm = "self_attn.q_norm";
  traits.names.k_norm = "self_attn.k_norm";
  traits.names.choice_bias = "block_sparse_moe.e_score_correction_bias";
  return traits;
}

}  // namespace pecia::model::families
