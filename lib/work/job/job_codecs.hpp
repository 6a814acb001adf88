// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How each kind of value in a job file is read, written, and described to a user.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/work/job/job.hpp"
#include "lib/work/job/yaml_tree.hpp"

namespace pecia::job {

template <typename T>
struct Codec {
  std::string allowed;                                    ///< completes "it may be …"
  std::function<std::optional<T>(const YamlNode&)> read;  ///< absent: the value is not allowed
  std::function<nlohmann::ordered_json(const T&)> write;
};

Codec<bool> boolean();

/// Whole numbers in [lowest, highest].
Codec<int64_t> whole(int64_t lowest, int64_t highest = INT64_MAX);
Codec<int32_t> whole32(int32_t lowest, int32_t highest = INT32_MAX);

/// Finite numbers for which `accept` holds; `allowed` describes them in words.
Codec<float> number(std::string allowed, std::function<bool(float)> accept);
Codec<double> number64(std::string allowed, std::function<bool(double)> accept);

/// A size of at least one byte.
Codec<int64_t> size_in_bytes();

/// A time of at least `lowest` seconds and at most a year.
Codec<double> duration(double lowest);

Codec<std::filesystem::path> path();
Codec<std::vector<std::filesystem::path>> paths();
Codec<std::vector<int32_t>> token_ids();
Codec<std::string> text();
Codec<std::vector<std::string>> texts();
Codec<RopeOverride> rope_override();
Codec<KvSaving> kv_saving();
/// true, false, or nccl.
Codec<GpuSharing> gpu_sharing();
/// auto, elastic, or a degree of at most `highest`.
Codec<CpSetting> cp_setting(int32_t highest);
Codec<ElasticRange> elastic_range(int32_t highest);
Codec<DropSetting> drop_setting();
/// Of levels of sparse attention: one number, or a list by level.
Codec<parallel::Micros> micro_partitions();
Codec<AttentionGoal> attention_goal();
Codec<BatchGoal> batch_goal();

template <typename E>
using Words = std::vector<std::pair<std::string_view, E>>;

template <typename E>
Codec<E> word(Words<E> words) {
  std::string allowed;
  for (const auto& [name, value] : words) {
    if (!allowed.empty()) allowed += " | ";
    allowed += name;
  }
  const auto read = [words](const YamlNode& node) -> std::optional<E> {
    if (node.kind != YamlNode::Kind::scalar) return std::nullopt;
    for (const auto& [name, value] : words)
      if (name == node.text) return value;
    return std::nullopt;
  };
  const auto write = [words](const E& wanted) -> nlohmann::ordered_json {
    for (const auto& [name, value] : words)
      if (value == wanted) return std::string(name);
    fail<InvalidArgument>("a value outside {} words", words.size());
  };
  return {allowed, read, write};
}

/// One of `words`, or {ffn: fp8}.
Codec<Precision> weight_precision(const Words<Precision>& words);

/// Takes `auto`, which becomes the absent optional, and whatever `codec` takes.
template <typename T>
Codec<std::optional<T>> auto_or(Codec<T> codec) {
  const auto read = [codec](const YamlNode& node) -> std::optional<std::optional<T>> {
    if (node.kind == YamlNode::Kind::scalar && node.text == "auto") return std::optional<T>();
    std::optional<T> value = codec.read(node);
    if (!value) return std::nullopt;
    return value;
  };
  const auto write = [codec](const std::optional<T>& value) -> nlohmann::ordered_json {
    if (!value) return "auto";
    return codec.write(*value);
  };
  return {"auto | " + codec.allowed, read, write};
}

/// The same for what is there or not.
template <typename T>
Codec<std::optional<T>> off_or(Codec<T> codec) {
  const auto read = [codec](const YamlNode& node) -> std::optional<std::optional<T>> {
    if (node.kind == YamlNode::Kind::scalar && node.text == "off") return std::optional<T>();
    std::optional<T> value = codec.read(node);
    if (!value) return std::nullopt;
    return value;
  };
  const auto write = [codec](const std::optional<T>& value) -> nlohmann::ordered_json {
    if (!value) return "off";
    return codec.write(*value);
  };
  return {"off | " + codec.allowed, read, write};
}

}  // namespace pecia::job
