// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Parses JSON from files of other programs.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace pecia::io {

/// Parses `text`. Rejects duplicate keys, and nesting far deeper than in any known checkpoint, so
/// that comparing, copying and printing the value is safe. Throws InputError naming `path` and, for
/// a duplicate, the key. Values of the key `left_out` are skipped.
nlohmann::json parse_strict_json(const std::filesystem::path& path, std::string_view text,
                                 std::string_view left_out = {});

}  // namespace pecia::io
