// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/weight_names.hpp"

#include <fmt/format.h>

namespace pecia::model {
std::string layer_name(int64_t layer, std::string_view name) {
  return fmt::format("model.layers.{}.{}", layer, name);
}

bool is_harmless(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq");
}

bool is_of_images(std::string_view name) {
  if (name.starts_with("model.")) name.remove_prefix(6);
  return name.starts_with("visual.") || name.starts_with("vision_tower.") ||
         name.starts_with("vision_model.") || name.starts_with("multi_modal_projector.") ||
         name.starts_with("audio_tower.") || name.starts_with("embed_vision.") ||
         name.starts_with("embed_audio.");
}

}  // namespace pecia::model
