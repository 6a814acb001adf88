// SPDX-License-Identifier: Apache-2.0
#include "lib/base/core/json.hpp"

#include <nlohmann/json.hpp>

#include "lib/base/core/error.hpp"
#include "lib/base/core/files.hpp"

namespace pecia {

std::string json_text(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}
std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

template <typename Json>
Json parse_json(std::string_view text) {
  return Json::parse(text.begin(), text.end());
}

template <typename Json>
Json try_json(std::string_view text, int max_depth) {
  constexpr bool throws = false;
  if (max_depth == std::numeric_limits<int>::max())
    return Json::parse(text.begin(), text.end(), nullptr, throws);
  const auto is_shallow = [&](int depth, typename Json::parse_event_t, Json&) {
    return depth <= max_depth;
  };
  return Json::parse(text.begin(), text.end(), is_shallow, throws);
}

template nlohmann::json parse_json(std::string_view);
template nlohmann::ordered_json parse_json(std::string_view);
template nlohmann::json try_json(std::string_view, int);
template nlohmann::ordered_json try_json(std::string_view, int);

nlohmann::ordered_json read_json_object(const std::filesystem::path& path) {
  std::error_code unreachable;
  if (!std::filesystem::exists(path, unreachable)) return nullptr;
  auto json = try_json<nlohmann::ordered_json>(text_of_file(path).value_or(""));
  if (!json.is_object())
    fail<InputError>("{}: no JSON object; the file is damaged, remove it", path.string());
  return json;
}

}  // namespace pecia
