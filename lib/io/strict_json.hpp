// SPDX-License-Identifier: Apache-2.0
#pragma once
/// JSON from files that others made.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace pecia::io {

/// The value that `text` holds, without duplicate keys and nested no deeper than any known
/// checkpoint's files by far, so that comparing, copying and printing it is safe. InputError naming
/// `path` and, for a duplicate, the key. Values of the key `left_out` are read over, not kept.
nlohmann::json parse_strict_json(const std::filesystem::path& path, std::string_view text,
                                 std::string_view left_out = {});

}  // namespace pecia::io
