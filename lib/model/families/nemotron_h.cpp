// SPDX-License-Identifier: Apache-2.0
#include "lib/model/families/families.hpp"

namespace pecia::model::families {

FamilyTraits nemotron_h() {
  FamilyTraits traits = llama();
  traits.family = Family::nemotron_h;
  traits.model_type = "nemotron_h";
  traits.architectures = {"NemotronHForCausalLM"};
  traits.examples = "Nemotron-H, Nemotron Nano 2, Nemotron 3";
  traits.beyond =
      "layers of one block: Mamba-2, attention without rotation, a feed-forward without a gate "
      "(squared ReLU), or a mixture of such experts as in `glm4_moe`, which may work on latents";
  traits.head_dim = 128;
  traits.num_heads = 32;
  traits.num_kv_heads = 8;
  traits.rms_norm_eps = 1e-5;
  traits.eps_key = "layer_norm_epsilon";
  traits.mlp_bias_configurable = false;
  traits.rotates = false;
  traits.activation = kernels::Activation::relu;
  traits.ffn_has_gate = false;
  add_sigmoid_experts(traits);
  traits.expert_latents = true;
  traits.num_experts = 8;
  traits.experts_per_token = 2;
  traits.shared_ffn_key = "moe_shared_expert_intermediate_size";  // however many they are
  traits.shared_ffn = 7688;
  traits.first_dense_key = "";
  traits.draft_layers_key = "";
  traits.draft_prefix = "mtp.";
  traits.known_values = {{"mlp_bias", "false"},
                         {"use_bias", "false"},
                         {"mamba_proj_bias", "false"},
                         {"mamba_hidden_act", R"("silu")"}};
  traits.recurrent = {.usual = {.corrects = false,
                                .key_heads = 8,
                                .key_dim = 128,
                                .heads = 128,
                                .value_dim = 64,
                                .conv_rows = 4,
                                .conv_bias = true},
                      .key_heads = "n_groups",
                      .key_dim = "ssm_state_size",
                      .heads = "mamba_num_heads",
                      .value_dim = "mamba_head_dim",
                      .conv_rows = "conv_kernel",
                      .conv_bias = "use_conv_bias",
                      .step_limit = "time_step_limit",
                      .one_block = true};
  WeightNames& names = traits.names;
  names.embedding = "model.embeddings";
  names.final_norm = "model.norm_f";
  names.attention_norm = names.ffn_norm = "norm";
  names.q = "mixer.q_proj";
  names.k = "mixer.k_proj";
  names.v = "mixer.v_proj";
  names.o = "mixer.o_proj";
  names.gate = "";
  names.up = "mixer.up_proj";
  names.down = "mixer.down_proj";
  names.router = "mixer.gate";
  names.choice_bias = "mixer.gate.e_score_correction_bias";
  names.to_latents = "mixer.fc1_latent_proj";
  names.from_latents = "mixer.fc2_latent_proj";
  names.expert_gate = names.shared_gate = "";
  names.expert_up = "mixer.experts.{}.up_proj";
  names.expert_down = "mixer.experts.{}.down_proj";
  names.shared_up = "mixer.shared_experts.up_proj";
  names.shared_down = "mixer.shared_experts.down_proj";
  names.recurrent = {.zvkqa = "mixer.in_proj",
                     .conv = "mixer.conv1d",
                     .norm = "mixer.norm",
                     .o = "mixer.out_proj",
                     .rate = "mixer.A_log",
                     .step_bias = "mixer.dt_bias",
                     .skip = "mixer.D"};
  return traits;
}

}  // namespace pecia::model::families
