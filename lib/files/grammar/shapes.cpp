// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/files/grammar/grammars.hpp"

namespace pecia::grammar {

using Json = nlohmann::ordered_json;

std::string shape_of_schema(std::string_view json_schema) {
  try {
    return json_text(Json{{"schema", parse_json<Json>(json_schema)}});
  } catch (const Json::parse_error& error) {
    fail<InputError>("the schema is no JSON: {}", error.what());
  }
}

std::string shape_of_regex(const std::string& regex) {
  return json_text(Json{{"regex", regex}});
}

std::string shape_of_choice(const std::vector<std::string>& texts) {
  return json_text(Json{{"choice", texts}});
}

}  // namespace pecia::grammar
