// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The text of JSON values, and the values of text. A compiler takes some seconds for nlohmann's
/// parser and printer in each source that calls them, so sources call these, which are compiled
/// once.

#include <filesystem>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace pecia {

/// `indent` spaces for each level; −1: one line. Bytes that are no UTF-8 become U+FFFD.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

/// Throws Json::parse_error where the text is no JSON. Json: nlohmann::json or ordered_json.
template <typename Json>
Json parse_json(std::string_view text);

/// A discarded value where the text is no JSON. Values that are nested more deeply than `max_depth`
/// are left out, so that no text makes the parser's caller recur deeply.
template <typename Json>
Json try_json(std::string_view text, int max_depth = std::numeric_limits<int>::max());

/// Reads a JSON object from a file that its writer always replaces whole; null where there is no
/// file. Throws InputError for a damaged one.
nlohmann::ordered_json read_json_object(const std::filesystem::path& path);

}  // namespace pecia
