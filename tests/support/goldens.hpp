// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace pecia::test {

/// tests/goldens, or the folder that PECIA_GOLDENS_FOLDER of the environment names.
std::filesystem::path goldens_folder();

/// One of its checkpoints.
inline std::filesystem::path golden(const std::string& name) {
  return goldens_folder() / name;
}

/// The names of all its checkpoints that have expected answers, in order.
std::vector<std::string> golden_names();

/// "llama-gqa" → "llama_gqa", as GoogleTest wants names of parameters.
std::string name_of_model(const testing::TestParamInfo<std::string>& model);

}  // namespace pecia::test
