// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ops/earlier_times.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/base/core/error.hpp"

namespace pecia::bench::ops {
namespace {

using Json = nlohmann::json;

/// A line of the file, with its number for messages.
struct Line {
  std::string where;
  Json values;

  bool has(const char* key) const { return values.contains(key); }

  std::string text(const char* key) const {
    if (!has(key) || !values[key].is_string()) refuse(key, "text");
    return values[key];
  }

  double seconds(const char* key) const {
    if (!has(key) || !values[key].is_number() || !(values[key] > 0.0))
      refuse(key, "number above 0");
    return values[key];
  }

 private:
  [[noreturn]] void refuse(const char* key, const char* kind) const {
    fail<InputError>(
        "{}: there is no '{}' that is a {}; give a file of what pecia-bench ops --json wrote",
        where, key, kind);
  }
};

Line parse(const std::string& text, const std::string& where) {
  Line line{where, Json::parse(text, nullptr, false)};
  if (!line.values.is_object())
    fail<InputError>("{}: not a JSON object; give a file of what pecia-bench ops --json wrote",
                     where);
  return line;
}

}  // namespace

EarlierTimes::EarlierTimes(const std::filesystem::path& file) : file_(file.string()) {
  std::ifstream stream(file);
  if (!stream) fail<InputError>("{}: cannot be read: {}", file_, std::strerror(errno));
  int number = 0;
  for (std::string text; std::getline(stream, text);) {
    const Line line = parse(text, fmt::format("{}:{}", file_, ++number));
    if (number == 1) {
      line.seconds("product_flops");
      origin_ = line.text("machine");
      origin_ += ", " + line.text("backend");
      origin_ += ", commit " + line.text("commit");
      if (line.has("compute")) origin_ += ", products of " + line.text("compute");
      continue;
    }
    if (line.has("bench")) continue;
    if (line.has("product_flops"))
      fail<InputError>("{}: a second run begins; give a file of one run", line.where);
    const Name name{line.text("op"), line.text("shape")};
    if (!median_s_.emplace(name, line.seconds("median_s")).second)
      fail<InputError>("{}: {}, {} comes twice; give a file of one run", line.where, name.first,
                       name.second);
  }
  if (number == 0) fail<InputError>("{}: there is nothing in it", file_);
}

void EarlierTimes::require(const std::vector<Name>& names) const {
  std::string missing;
  for (const Name& name : names)
    if (!median_s_.contains(name)) missing += fmt::format("\n  {}, {}", name.first, name.second);
  if (!missing.empty())
    fail<InputError>("{} ({}) has no line of{}\nwrite it anew with --json, or choose ops with --op",
                     file_, origin_, missing);
}

double EarlierTimes::median_s(const std::string& op, const std::string& shape) const {
  const auto found = median_s_.find({op, shape});
  PECIA_CHECK(found != median_s_.end(), "{}, {} was not required", op, shape);
  return found->second;
}

}  // namespace pecia::bench::ops
