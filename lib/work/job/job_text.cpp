// SPDX-License-Identifier: Apache-2.0
/// Jobs as text: YAML, JSON, and the commented default.

#include <algorithm>
#include <string_view>

#include "lib/base/core/json.hpp"
#include "lib/work/job/job.hpp"
#include "lib/work/job/job_schema.hpp"

namespace pecia::job {
namespace {

constexpr size_t max_comment_columns = 100;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Whether every YAML reader takes the unquoted text for a string, in flow context too.
bool plain(std::string_view text) {
  constexpr std::string_view not_strings[] = {"null", "true", "false", "yes", "no", "on", "off"};
  if (text.empty() || !(is_letter(text[0]) || text[0] == '/' || is_letter(text.back())))
    return false;
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (std::find(std::begin(not_strings), std::end(not_strings), lower) != std::end(not_strings))
    return false;
  return text[0] != '*' && std::all_of(text.begin(), text.end(), [](char c) {
           return is_letter(c) || (c >= '0' && c <= '9') ||
                  std::string_view("_-./*").find(c) != std::string_view::npos;
         });
}

/// JSON is YAML; only strings and brackets are made nicer.
std::string yaml_value(const nlohmann::ordered_json& value) {
  if (value.is_string() && plain(value.get<std::string>())) return value.get<std::string>();
  if (value.is_array()) {
    std::string text;
    for (const auto& item : value) text += (text.empty() ? "" : ", ") + yaml_value(item);
    return "[" + text + "]";
  }
  if (value.is_object()) {
    std::string text;
    for (const auto& [key, item] : value.items())
      text += (text.empty() ? "" : ", ") + key + ": " + yaml_value(item);
    return "{" + text + "}";
  }
  return json_text(value);
}

std::string comment(std::string_view text, std::string_view indent) {
  std::string result, line = std::string(indent) + "#";
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (line.size() + 1 + end > max_comment_columns) {
      result += line + "\n";
      line = std::string(indent) + "#";
    }
    line += ' ';
    line += text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result + line + "\n";
}

template <typename Value>
std::string fields_as_yaml(const Value& value_of, bool with_comments) {
  std::string text;
  std::string_view section;
  for (const Field& field : schema()) {
    if (field.section() != section && !field.section().empty()) {
      if (with_comments) text += "\n";
      text += std::string(field.section()) + ":\n";
    } else if (with_comments && field.section().empty()) {
      text += "\n";
    }
    section = field.section();
    const std::string_view indent = section.empty() ? "" : "  ";
    if (with_comments)
      text += comment(
          field.help + (field.required() ? " Required: " : " Allowed: ") + field.allowed + ".",
          indent);
    text += std::string(indent) + std::string(field.name()) + ": " + value_of(field) + "\n";
  }
  return text;
}

}  // namespace

std::string to_yaml(const Job& job) {
  return fields_as_yaml([&](const Field& field) { return yaml_value(field.write(job)); }, false);
}

std::string to_json(const Job& job) {
  nlohmann::ordered_json root;
  for (const Field& field : schema()) {
    auto& parent = field.section().empty() ? root : root[std::string(field.section())];
    parent[std::string(field.name())] = field.write(job);
  }
  return json_text(root, 2);
}

std::string default_yaml() {
  const Job defaults;
  const auto value = [&](const Field& field) {
    return field.required() ? field.example : yaml_value(field.write(defaults));
  };
  return "# A job for pecia run. Paths are relative to this file. Every key with its default; "
         "keys\n"
         "# marked Required have none, all others may be left out.\n" +
         fields_as_yaml(value, true);
}

}  // namespace pecia::job
