// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Published models that can be planned for without their files.

#include <string>
#include <vector>

#include "lib/model/config/config.hpp"

namespace pecia::model {

/// Names of the models that are known.
std::vector<std::string> model_presets();

/// The configuration of the preset of this name, or else of the model's folder. Throws InputError as
/// read_config does, and for what is neither, naming the presets that may be meant.
ModelConfig config_of_preset_or_folder(const std::string& preset_or_folder);

}  // namespace pecia::model
