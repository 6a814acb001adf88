// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A folder for one test's files, removed with its owner.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace pecia::test {

class ModelFolder {
 public:
  ModelFolder() {
    std::string pattern = testing::TempDir() + "pecia-model-XXXXXX";
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder " + pattern);
    path_ = pattern;
  }
  ~ModelFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace pecia::test
