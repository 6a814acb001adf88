// SPDX-License-Identifier: Apache-2.0
#include "lib/files/disk/strict_json.hpp"

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <vector>

#include "lib/base/core/error.hpp"

namespace pecia::io {
namespace {

using nlohmann::json;

constexpr int max_depth = 32;  // checkpoint files have up to 6
constexpr const char* json_remedy = "download or save the checkpoint again";

}  // namespace

json parse_strict_json(const std::filesystem::path& path, std::string_view text,
                       std::string_view left_out) {
  std::vector<std::unordered_set<std::string>> keys;  // of the objects being read, outermost first
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > max_depth)
      fail<InputError>("{}: its JSON is nested deeper than {} levels: {}", path.string(), max_depth,
                       json_remedy);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      fail<InputError>("{}: '{}' appears twice in its JSON: {}", path.string(),
                       value.get<std::string>(), json_remedy);
    return left_out.empty() || event != json::parse_event_t::key ||
           value.get_ref<const std::string&>() != left_out;
  };
  try {
    return json::parse(text, check);
  } catch (const json::exception& error) {
    // The library's message quotes the text it read last, which may be the whole file.
    fail<InputError>("{}: its JSON cannot be read ({:.200}): {}", path.string(), error.what(),
                     json_remedy);
  }
}

}  // namespace pecia::io
