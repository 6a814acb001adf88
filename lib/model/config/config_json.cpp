// SPDX-License-Identifier: Apache-2.0
#include "lib/model/config/config_json.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "lib/base/core/json.hpp"
#include "lib/files/disk/mapped_file.hpp"
#include "lib/files/disk/strict_json.hpp"

namespace pecia::model {
namespace {

using nlohmann::json;

constexpr size_t max_file_bytes = 10'000'000;

/// The text with what Python writes for numbers that JSON lacks as transformers 5 writes them.
///
///     [0.0, Infinity]     [0.0, {"__float__": "Infinity"}]
std::string with_named_numbers(std::string_view text) {
  constexpr std::array<std::string_view, 3> words = {"-Infinity", "Infinity", "NaN"};
  std::string strict;
  strict.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    const auto* const word = std::ranges::find_if(
        words, [&](std::string_view each) { return text.substr(i).starts_with(each); });
    if (!in_string && word != words.end()) {
      strict += fmt::format(R"({{"__float__": "{}"}})", *word);
      i += word->size();
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    if (text[i] == '\\' && in_string && i + 1 < text.size()) strict += text[i++];
    strict += text[i++];
  }
  return strict;
}

/// A JSON number, or infinity as with_named_numbers writes it.
std::optional<double> number_of(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == json{{"__float__", "Infinity"}}) return std::numeric_limits<double>::infinity();
  return {};
}

bool is_integer_within(const json& value, int64_t min, int64_t max) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return false;
  return value.is_number_integer() && value.get<int64_t>() >= min && value.get<int64_t>() <= max;
}

}  // namespace

JsonSection JsonSection::read(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error))
    fail<InputError>("{}: cannot be opened ({}); a model is a Hugging Face folder with this file",
                     file.string(), error ? error.message() : "No such file or directory");
  const io::MappedFile text(file);
  if (text.bytes().size() > max_file_bytes)
    fail<InputError>("{}: has {} bytes, more than any configuration; download it again",
                     file.string(), text.bytes().size());
  return parse({reinterpret_cast<const char*>(text.bytes().data()), text.bytes().size()}, file);
}

JsonSection JsonSection::parse(std::string_view text, const std::filesystem::path& file) {
  json object = io::parse_strict_json(file, with_named_numbers(text));
  if (!object.is_object())
    fail<InputError>("{}: holds a JSON {}, not an object; download it again", file.string(),
                     object.type_name());
  return JsonSection(file.string(), "", std::move(object));
}

void JsonSection::adopt(const JsonSection& outer, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys)
    if (outer.names(key) && !names(key))
      object_[std::string(key)] = outer.object_[std::string(key)];
}

bool JsonSection::names(std::string_view key) const {
  return object_.contains(key);
}

const json* JsonSection::find(std::string_view key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::string JsonSection::name_of(std::string_view key) const {
  return prefix_ + std::string(key);
}

std::string JsonSection::value_text(std::string_view key) const {
  constexpr size_t longest = 80;
  const json* value = find(key);
  if (!value) return names(key) ? "null" : "absent";
  std::string text = json_text(*value);
  if (text.size() > longest) text = text.substr(0, longest) + "…";
  return text;
}

void JsonSection::missing(std::string_view key) const {
  fail<InputError>("{}: {} is missing; complete the file or download it again", file_,
                   name_of(key));
}

std::optional<int64_t> JsonSection::integer(std::string_view key, int64_t min, int64_t max) const {
  const json* value = find(key);
  if (!value) return {};
  if (!is_integer_within(*value, min, max))
    refuse(key, fmt::format("but must be an integer of {} … {}; correct it", min, max));
  return value->get<int64_t>();
}

std::optional<double> JsonSection::number(std::string_view key, double min, double max) const {
  const json* value = find(key);
  if (!value) return {};
  const std::optional<double> number = number_of(*value);
  if (!number || !(*number >= min && *number <= max))
    refuse(key, fmt::format("but must be a number of {} … {}; correct it", min, max));
  return number;
}

std::optional<bool> JsonSection::flag(std::string_view key) const {
  const json* value = find(key);
  if (!value) return {};
  if (!value->is_boolean()) refuse(key, "but must be true or false; correct it");
  return value->get<bool>();
}

std::optional<std::string> JsonSection::text(std::string_view key) const {
  const json* value = find(key);
  if (!value) return {};
  if (!value->is_string()) refuse(key, "but must be a string; correct it");
  return value->get<std::string>();
}

std::optional<JsonSection> JsonSection::section(std::string_view key) const {
  const json* value = find(key);
  if (!value) return {};
  if (!value->is_object()) refuse(key, "but must be an object or null; correct it");
  return JsonSection(file_, name_of(key) + ".", *value);
}

std::optional<std::vector<int64_t>> JsonSection::integers(std::string_view key, int64_t min,
                                                          int64_t max) const {
  const json* value = find(key);
  if (!value) return {};
  std::vector<int64_t> all;
  for (const json& entry : value->is_array() ? *value : json::array({*value})) {
    if (!is_integer_within(entry, min, max))
      refuse(key, fmt::format("but must be one or more integers of {} … {}; correct it", min, max));
    all.push_back(entry.get<int64_t>());
  }
  return all;
}

std::optional<std::vector<double>> JsonSection::numbers(std::string_view key, double min,
                                                        double max) const {
  const json* value = find(key);
  if (!value) return {};
  std::vector<double> all;
  for (const json& entry : value->is_array() ? *value : json::array({*value})) {
    const std::optional<double> number = number_of(entry);
    if (!number || !(*number >= min && *number <= max))
      refuse(key, fmt::format("but must be one or more numbers of {} … {}; correct it", min, max));
    all.push_back(*number);
  }
  return all;
}

std::optional<std::vector<std::string>> JsonSection::texts(std::string_view key) const {
  const json* value = find(key);
  if (!value) return {};
  std::vector<std::string> all;
  for (const json& entry : value->is_array() ? *value : json::array({*value})) {
    if (!entry.is_string()) refuse(key, "but must be a list of strings; correct it");
    all.push_back(entry.get<std::string>());
  }
  return all;
}

int64_t JsonSection::required_integer(std::string_view key, int64_t min, int64_t max) const {
  const auto value = integer(key, min, max);
  if (!value) missing(key);
  return *value;
}

double JsonSection::required_number(std::string_view key, double min, double max) const {
  const auto value = number(key, min, max);
  if (!value) missing(key);
  return *value;
}

}  // namespace pecia::model
