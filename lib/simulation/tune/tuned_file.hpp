// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The file that a tuner writes, schema "pecia.tuned/4".

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lib/simulation/tune/tuned.hpp"

namespace pecia::tune {

inline constexpr const char* tuned_schema = "pecia.tuned/4";

nlohmann::ordered_json to_json(const Tuned& tuned);

/// Reads what to_json wrote. Throws InputError naming `path` and what is wrong: no JSON, another
/// schema, a missing key, a value of the wrong kind or out of range.
Tuned parse_tuned(const std::filesystem::path& path, const std::string& text);

/// Does the same for a file of at most 64 MB.
Tuned read_tuned(const std::filesystem::path& path);

}  // namespace pecia::tune
