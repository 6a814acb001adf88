// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

void add_delta_net(FamilyTraits& traits) {
  traits.head_dim = 256;
  traits.num_heads = 16;
  traits.max_positions = 32768;
  traits.partial_rotary_factor = 0.25;
  traits.partial_rotation = true;
  traits.bias_key = "";
  traits.known_values = {{"attention_bias", "false"},
                         {"attn_output_gate", "true"},
                         {"output_gate_type", R"("swish")"}};
  traits.windows = WindowRule::never;
  traits.period_key = "full_attention_interval";
  traits.norm_weight_offset = 1;
  traits.gate_in_queries = true;
  traits.draft_prefix = "mtp.";
  traits.recurrent = {.usual = {.corrects = true,
                                .key_heads = 16,
                                .key_dim = 128,
                                .heads = 32,
                                .value_dim = 128,
                                .conv_rows = 4},
                      .key_heads = "linear_num_key_heads",
                      .key_dim = "linear_key_head_dim",
                      .heads = "linear_num_value_heads",
                      .value_dim = "linear_value_head_dim",
                      .conv_rows = "linear_conv_kernel_dim",
                      .full_period = 4};
  RecurrentNames& names = traits.names.recurrent;
  names.conv = "linear_attn.conv1d";
  names.norm = "linear_attn.norm";
  names.o = "linear_attn.out_proj";
  names.rate = "linear_attn.A_log";
  names.step_bias = "linear_attn.dt_bias";
}

}  // namespace pecia::model::families
