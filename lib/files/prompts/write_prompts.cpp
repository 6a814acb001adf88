// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "lib/base/core/error.hpp"
#include "lib/files/hdf5/hdf5.hpp"
#include "lib/files/prompts/prompts.hpp"

namespace pecia::io {

void write_prompts(const std::filesystem::path& path, const std::vector<PromptText>& texts) {
  PECIA_CHECK(!texts.empty(), "a shard without requests");
  std::vector<int32_t> tokens;
  std::vector<int64_t> turn_offsets{0}, request_offsets(texts.size() + 1);
  size_t width = 1;
  for (const PromptText& text : texts) {
    tokens.insert(tokens.end(), text.tokens.begin(), text.tokens.end());
    turn_offsets.push_back(std::ssize(tokens));
    width = std::max(width, text.id.size());
  }
  std::iota(request_offsets.begin(), request_offsets.end(), int64_t{0});
  std::string ids;
  for (const PromptText& text : texts) ids += text.id + std::string(width - text.id.size(), '\0');

  Hdf5File file = Hdf5File::create(path);
  file.set_attribute("schema", std::string("pecia.prompts/1"));
  const auto write = [&](const char* name, hid_t type, int64_t count, const void* data) {
    file.create_dataset(name, type, {count}).write(type, data);
  };
  write("/tokens", H5T_NATIVE_INT32, std::ssize(tokens), tokens.data());
  write("/turn_offsets", H5T_NATIVE_INT64, std::ssize(turn_offsets), turn_offsets.data());
  write("/request_offsets", H5T_NATIVE_INT64, std::ssize(request_offsets), request_offsets.data());
  const Hdf5Type text = hdf5_text_type(static_cast<int64_t>(width));
  write("/request_id", text.get(), std::ssize(texts), ids.data());
  file.close();
}

}  // namespace pecia::io
