// SPDX-License-Identifier: Apache-2.0
#include "lib/work/batch/set_aside.hpp"

#include <string>

#include "lib/base/core/error.hpp"

namespace pecia::batch {

namespace fs = std::filesystem;

fs::path set_aside(const fs::path& path) {
  fs::path older;
  int number = 0;
  do
    older = path.parent_path() /
            fmt::format("{}.{}{}", path.stem().string(), ++number, path.extension().string());
  while (fs::exists(fs::symlink_status(older)));
  std::error_code error;
  fs::rename(path, older, error);
  if (error)
    fail<SystemError>("{} cannot be renamed to {}: {}", path.string(), older.string(),
                      error.message());
  return older;
}

}  // namespace pecia::batch
