// SPDX-License-Identifier: Apache-2.0
#include "lib/model/config/fingerprint.hpp"

#include "lib/files/checkpoint/safetensors.hpp"
#include "lib/files/disk/sampled_hash.hpp"

namespace pecia::model {
namespace {

std::string sha256_if_there(const std::filesystem::path& path) {
  std::error_code ignored;  // reading the file for its use reports what is wrong
  return std::filesystem::exists(path, ignored) ? io::sha256_of_file(path) : "";
}

}  // namespace

Fingerprint fingerprint_of_settings(const std::filesystem::path& folder) {
  return {{sha256_if_there(folder / "config.json"),
           sha256_if_there(folder / "generation_config.json"),
           sha256_if_there(folder / "tokenizer.json"), "", ""}};
}

Fingerprint fingerprint_of(const std::filesystem::path& folder) {
  Fingerprint found = fingerprint_of_settings(folder);
  found.parts[3] = io::Checkpoint(folder).index_sha256();
  found.parts[4] = io::sampled_sha256(io::checkpoint_files(folder));
  return found;
}

}  // namespace pecia::model
