// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A folder that exists as long as a test.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "lib/core/error.hpp"

namespace pecia::test {

class TempFolder {
 public:
  TempFolder() {
    std::string name = testing::TempDir() + "/pecia-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) fail<SystemError>("no temporary folder {}", name);
    path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() { std::filesystem::remove_all(path_); }

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace pecia::test
