// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits granitemoehybrid() {
  FamilyTraits traits = granite();
  traits.family = Family::granitemoehybrid;
  traits.model_type = "granitemoehybrid";
  traits.architectures = {"GraniteMoeHybridForCausalLM"};
  traits.examples = "Granite 4.0 H Micro, Tiny, Small";
  traits.beyond =
      "Granite's multipliers; Mamba-2 in most layers, no rotation; a shared expert, and perhaps a "
      "mixture of experts";
  traits.mlp_bias_configurable = false;
  traits.rotation_key = "position_embedding_type";
  traits.dense_ffn_key = "shared_intermediate_size";
  traits.dense_ffn = 1024;
  traits.has_experts = true;
  traits.experts_optional = true;
  traits.expert_count_key = "num_local_experts";
  traits.num_experts = 8;
  traits.experts_per_token = 2;
  traits.expert_ffn_key = "intermediate_size";
  traits.shared_ffn_key = "shared_intermediate_size";
  traits.shared_ffn = 1024;
  traits.routing = kernels::Routing::of_chosen;
  traits.known_values = {{"mamba_proj_bias", "false"}};
  traits.recurrent = {.usual = {.corrects = false,
                                .key_heads = 1,
                                .key_dim = 256,
                                .heads = 128,
                                .conv_rows = 4,
                                .conv_bias = true},
                      .key_heads = "mamba_n_groups",
                      .key_dim = "mamba_d_state",
                      .heads = "mamba_n_heads",
                      .value_dim = "mamba_d_head",
                      .conv_rows = "mamba_d_conv",
                      .conv_bias = "mamba_conv_bias",
                      .step_limit = "time_step_limit",
                      .expansion = "mamba_expand",
                      .usual_expansion = 2};
  WeightNames& names = traits.names;
  names.gate = names.up = "";
  names.gate_up = names.shared_gate_up = "shared_mlp.input_linear";
  names.down = names.shared_down = "shared_mlp.output_linear";
  names.router = "block_sparse_moe.router.layer";
  names.experts_gate_up = "block_sparse_moe.input_linear.weight";
  names.experts_down = "block_sparse_moe.output_linear.weight";
  names.recurrent = {.zvkqa = "mamba.in_proj",
                     .conv = "mamba.conv1d",
                     .norm = "mamba.norm",
                     .o = "mamba.out_proj",
                     .rate = "mamba.A_log",
                     .step_bias = "mamba.dt_bias",
                     .skip = "mamba.D"};
  return traits;
}

}  // namespace pecia::model::families
