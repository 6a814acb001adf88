// SPDX-License-Identifier: Apache-2.0
#include "lib/model/config/family.hpp"

#include <fmt/format.h>

#include <array>

#include "lib/model/families/families.hpp"

namespace pecia::model {

std::span<const FamilyTraits> all_families() {
  static const std::array all = {families::llama(),       families::mistral(),
                                 families::ministral(),   families::ministral3(),
                                 families::qwen2(),       families::qwen3(),
                                 families::glm(),         families::internlm2(),
                                 families::granite(),     families::smollm3(),
                                 families::phi3(),        families::olmo2(),
                                 families::olmo3(),       families::gemma3(),
                                 families::qwen3_moe(),   families::mixtral(),
                                 families::olmoe(),       families::gpt_oss(),
                                 families::apertus(),     families::glm4_moe(),
                                 families::minimax_m2(),  families::afmoe(),
                                 families::deepseek_v3(), families::glm4_moe_lite(),
                                 families::mistral4(),    families::llama4_text(),
                                 families::qwen2_moe(),   families::gemma4(),
                                 families::qwen3_next(),  families::qwen3_5(),
                                 families::qwen3_5_moe(), families::granitemoehybrid(),
                                 families::nemotron_h()};
  return all;
}

const FamilyTraits& traits_of(Family family) {
  return all_families()[static_cast<size_t>(family)];
}

std::string families_markdown() {
  std::string table =
      "| `model_type` | models, for example | beyond the common core |\n|---|---|---|\n";
  for (const FamilyTraits& traits : all_families())
    table += fmt::format("| `{}` | {} | {} |\n", traits.model_type, traits.examples, traits.beyond);
  return table;
}

std::string_view name_of(Family family) {
  return traits_of(family).model_type;
}

}  // namespace pecia::model
