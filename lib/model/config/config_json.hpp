// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A JSON object of a configuration file, read key by key. Errors name file, key and value.

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/core/error.hpp"

namespace pecia::model {

/// Each reader returns nothing for a key that is absent or null. It throws InputError for a value
/// of another type or outside [min, max].
class JsonSection {
 public:
  /// Reads a whole file. Throws InputError if it is absent, cannot be read, is far too large, or
  /// does not hold a JSON object.
  static JsonSection read(const std::filesystem::path& file);
  /// The same of a file's text.
  static JsonSection parse(std::string_view text, const std::filesystem::path& file);

  std::optional<int64_t> integer(std::string_view key, int64_t min, int64_t max) const;
  /// Infinity may be written as Python and transformers 5 do: Infinity, {"__float__": "Infinity"}.
  std::optional<double> number(std::string_view key, double min, double max) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  std::optional<JsonSection> section(std::string_view key) const;
  /// These read a list; a single value counts as a list of one.
  std::optional<std::vector<int64_t>> integers(std::string_view key, int64_t min,
                                               int64_t max) const;
  std::optional<std::vector<double>> numbers(std::string_view key, double min, double max) const;
  std::optional<std::vector<std::string>> texts(std::string_view key) const;

  int64_t required_integer(std::string_view key, int64_t min, int64_t max) const;
  double required_number(std::string_view key, double min, double max) const;

  /// Takes the values of those keys that only `outer` has.
  void adopt(const JsonSection& outer, std::initializer_list<std::string_view> keys);

  bool names(std::string_view key) const;  ///< the key is present, even if null
  /// Pointer to the value; null if the key is absent.
  const nlohmann::json* find(std::string_view key) const;
  const nlohmann::json& object() const { return object_; }
  const std::string& file() const { return file_; }
  std::string name_of(std::string_view key) const;  ///< e.g. "rope_scaling.factor"

  /// Throws `E` with "FILE: KEY is VALUE, WHY".
  template <typename E = InputError>
  [[noreturn]] void refuse(std::string_view key, std::string_view why) const {
    fail<E>("{}: {} is {}, {}", file_, name_of(key), value_text(key), why);
  }
  /// Throws InputError for a required key that is absent.
  [[noreturn]] void missing(std::string_view key) const;

 private:
  JsonSection(std::string file, std::string prefix, nlohmann::json object)
      : file_(std::move(file)), prefix_(std::move(prefix)), object_(std::move(object)) {}

  std::string value_text(std::string_view key) const;

  std::string file_;
  std::string prefix_;  ///< beginning of keys in messages: "rope_scaling." or empty
  nlohmann::json object_;
};

}  // namespace pecia::model
