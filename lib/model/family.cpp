// SPDX-License-Identifier: Apache-2.0
#include "lib/model/family.hpp"

#include <array>

namespace pecia::model {
namespace {

constexpr auto halves = kernels::RopePairs::halves;

FamilyTraits llama() {
  return {.family = Family::llama,
          .model_type = "llama",
          .architectures = {"LlamaForCausalLM", "LLaMAForCausalLM"},
          .head_dim = 0,
          .rms_norm_eps = 1e-6,
          .partial_rotary_factor = 1.0,
          .eos_token_ids = {2},
          .bias_key = "attention_bias",
          .bias_default = false,
          .bias_on_output = true,
          .mlp_bias_configurable = true,
          .qk_norm = false,
          .pairs = halves,
          .partial_rotation = false,
          .windows = WindowRule::never,
          .window_default = 0};
}

FamilyTraits mistral() {
  FamilyTraits traits = llama();
  traits.family = Family::mistral;
  traits.model_type = "mistral";
  traits.architectures = {"MistralForCausalLM"};
  traits.bias_key = "";
  traits.bias_on_output = false;
  traits.mlp_bias_configurable = false;
  traits.windows = WindowRule::every_layer;
  traits.window_default = 4096;
  return traits;
}

FamilyTraits qwen2() {
  FamilyTraits traits = mistral();
  traits.family = Family::qwen2;
  traits.model_type = "qwen2";
  traits.architectures = {"Qwen2ForCausalLM"};
  traits.eos_token_ids = {};
  traits.bias_default = true;
  traits.windows = WindowRule::by_layer;
  return traits;
}

FamilyTraits qwen3() {
  FamilyTraits traits = qwen2();
  traits.family = Family::qwen3;
  traits.model_type = "qwen3";
  traits.architectures = {"Qwen3ForCausalLM"};
  traits.head_dim = 128;
  traits.bias_key = "attention_bias";
  traits.bias_default = false;
  traits.bias_on_output = true;
  traits.qk_norm = true;
  return traits;
}

FamilyTraits glm() {
  FamilyTraits traits = llama();
  traits.family = Family::glm;
  traits.model_type = "glm";
  traits.architectures = {"GlmForCausalLM"};
  traits.head_dim = 128;
  traits.rms_norm_eps = 1.5625e-07;
  traits.partial_rotary_factor = 0.5;
  traits.eos_token_ids = {151329, 151336, 151338};
  traits.bias_default = true;
  traits.bias_on_output = false;
  traits.mlp_bias_configurable = false;
  traits.pairs = kernels::RopePairs::interleaved;
  traits.partial_rotation = true;
  return traits;
}

FamilyTraits internlm2() {
  FamilyTraits traits = llama();
  traits.family = Family::internlm2;
  traits.model_type = "internlm2";
  traits.architectures = {"InternLM2ForCausalLM"};
  traits.bias_key = "bias";
  traits.bias_default = true;
  traits.mlp_bias_configurable = false;
  return traits;
}

}  // namespace

std::span<const FamilyTraits> families() {
  static const std::array all = {llama(), mistral(), qwen2(), qwen3(), glm(), internlm2()};
  return all;
}

const FamilyTraits& traits_of(Family family) {
  return families()[static_cast<size_t>(family)];
}

std::string_view name_of(Family family) {
  return traits_of(family).model_type;
}

}  // namespace pecia::model
