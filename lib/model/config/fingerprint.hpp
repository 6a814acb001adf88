// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Hashes of the files of a model's folder that decide what it answers, to tell two folders apart.

#include <array>
#include <filesystem>
#include <string>

namespace pecia::model {

struct Fingerprint {
  static constexpr std::array<const char*, 5> part_names = {
      "config.json", "generation_config.json", "tokenizer.json", "names and shapes of the weights",
      "contents of the weights"};

  /// sha256 (hex) of each part; "" where the folder lacks the file.
  std::array<std::string, part_names.size()> parts;

  /// See io::sampled_sha256 for the changes that it does not see.
  const std::string& contents() const { return parts.back(); }

  template <typename A>
  void visit(A& archive) {
    for (std::string& part : parts) archive(part);
  }
};

/// Reads the small files of `folder`; the parts of the weights stay "". Throws InputError.
Fingerprint fingerprint_of_settings(const std::filesystem::path& folder);

/// Also reads at most some 40 MiB of the weights. Throws InputError as io::Checkpoint does.
Fingerprint fingerprint_of(const std::filesystem::path& folder);

}  // namespace pecia::model
