// SPDX-License-Identifier: Apache-2.0
#include "tests/support/goldens.hpp"

#include <algorithm>
#include <cstdlib>

namespace pecia::test {

std::filesystem::path goldens_folder() {
  const char* const folder = std::getenv("PECIA_GOLDENS_FOLDER");
  return folder != nullptr ? folder : PECIA_GOLDENS;
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(goldens_folder()))
    if (std::filesystem::exists(entry.path() / "golden.json"))
      names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string name_of_model(const testing::TestParamInfo<std::string>& model) {
  std::string name = model.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace pecia::test
