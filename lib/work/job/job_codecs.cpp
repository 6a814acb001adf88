// SPDX-License-Identifier: Apache-2.0
#include "lib/work/job/job_codecs.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "lib/files/text/utf8.hpp"
#include "lib/work/job/units.hpp"

namespace pecia::job {
namespace {

constexpr double year_s = 366.0 * 86400;

/// Reads a number of type T that fills an unquoted scalar.
template <typename T>
std::optional<T> plain_number(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar || node.quoted) return std::nullopt;
  T value{};
  const char* const end = node.text.data() + node.text.size();
  const auto result = std::from_chars(node.text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

std::string range_in_words(int64_t lowest, int64_t highest, int64_t type_highest) {
  if (lowest == INT64_MIN) return "a whole number of 64 bits";
  if (highest == type_highest) return fmt::format("a whole number of at least {}", lowest);
  return fmt::format("a whole number from {} to {}", lowest, highest);
}

template <typename T>
Codec<T> whole_number(T lowest, T highest) {
  return {range_in_words(lowest, highest, std::numeric_limits<T>::max()),
          [=](const YamlNode& node) -> std::optional<T> {
            const auto value = plain_number<T>(node);
            if (!value || *value < lowest || *value > highest) return std::nullopt;
            return value;
          },
          [](const T& value) -> nlohmann::ordered_json { return value; }};
}

/// The nearest double to the number's shortest decimal form: 0.1f is written 0.1.
nlohmann::ordered_json shortest(float value) {
  const std::string text = fmt::format("{}", value);
  double nearest = 0;
  std::from_chars(text.data(), text.data() + text.size(), nearest);
  return nearest;
}

std::optional<std::filesystem::path> read_path(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar || node.text.empty() ||
      node.text.find('\0') != std::string::npos)
    return std::nullopt;
  return std::filesystem::path(node.text);
}

nlohmann::ordered_json shortest(double value) {
  return value;
}

/// Applies one element's reader to a list; a lone scalar is a list of one.
template <typename T, typename Read>
std::optional<std::vector<T>> read_list(const YamlNode& node, const Read& read) {
  std::vector<T> values;
  if (node.kind == YamlNode::Kind::scalar) {
    const std::optional<T> value = read(node);
    if (!value) return std::nullopt;
    return std::vector<T>{*value};
  }
  if (node.kind != YamlNode::Kind::list) return std::nullopt;
  for (const YamlNode& child : node.children) {
    const std::optional<T> value = read(child);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

}  // namespace

Codec<bool> boolean() {
  return {"true | false",
          [](const YamlNode& node) -> std::optional<bool> {
            if (node.kind != YamlNode::Kind::scalar || node.quoted) return std::nullopt;
            if (node.text == "true") return true;
            if (node.text == "false") return false;
            return std::nullopt;
          },
          [](const bool& value) -> nlohmann::ordered_json { return value; }};
}

Codec<GpuSharing> gpu_sharing() {
  const Codec<bool> either = boolean();
  return {either.allowed + " | nccl",
          [either](const YamlNode& node) -> std::optional<GpuSharing> {
            if (node.kind == YamlNode::Kind::scalar && node.text == "nccl") return GpuSharing::nccl;
            const std::optional<bool> staged = either.read(node);
            if (!staged) return std::nullopt;
            return *staged ? GpuSharing::staged : GpuSharing::no;
          },
          [](const GpuSharing& value) -> nlohmann::ordered_json {
            if (value == GpuSharing::nccl) return "nccl";
            return value == GpuSharing::staged;
          }};
}

Codec<int64_t> whole(int64_t lowest, int64_t highest) {
  return whole_number<int64_t>(lowest, highest);
}

Codec<int32_t> whole32(int32_t lowest, int32_t highest) {
  return whole_number<int32_t>(lowest, highest);
}

namespace {

template <typename Real>
Codec<Real> finite_number(std::string allowed, std::function<bool(Real)> accept) {
  return {std::move(allowed),
          [accept = std::move(accept)](const YamlNode& node) -> std::optional<Real> {
            const auto value = plain_number<Real>(node);
            if (!value || !std::isfinite(*value) || !accept(*value)) return std::nullopt;
            return value;
          },
          [](const Real& value) { return shortest(value); }};
}

}  // namespace

Codec<float> number(std::string allowed, std::function<bool(float)> accept) {
  return finite_number(std::move(allowed), std::move(accept));
}

Codec<double> number64(std::string allowed, std::function<bool(double)> accept) {
  return finite_number(std::move(allowed), std::move(accept));
}

Codec<int64_t> size_in_bytes() {
  return {"a size as 12GiB, 500MB, 12G (1024 based, as in Slurm) or a number of bytes",
          [](const YamlNode& node) -> std::optional<int64_t> {
            if (node.kind != YamlNode::Kind::scalar) return std::nullopt;
            const auto bytes = parse_bytes(node.text);
            if (!bytes || *bytes < 1) return std::nullopt;
            return bytes;
          },
          [](const int64_t& bytes) -> nlohmann::ordered_json { return bytes; }};
}

Codec<double> duration(double lowest) {
  return {fmt::format("a time as 60s, 10min, 1h30m, 90 (seconds) or Slurm's 1:30:00 and "
                      "2-00:00:00, from {} to 366d",
                      format_seconds(lowest)),
          [lowest](const YamlNode& node) -> std::optional<double> {
            if (node.kind != YamlNode::Kind::scalar) return std::nullopt;
            const auto seconds = parse_seconds(node.text);
            if (!seconds || *seconds < lowest || *seconds > year_s) return std::nullopt;
            return seconds;
          },
          [](const double& seconds) -> nlohmann::ordered_json { return format_seconds(seconds); }};
}

Codec<std::filesystem::path> path() {
  return {"a path", read_path, [](const std::filesystem::path& value) -> nlohmann::ordered_json {
            return value.string();
          }};
}

Codec<KvSaving> kv_saving() {
  const auto read = [](const YamlNode& node) -> std::optional<KvSaving> {
    const auto text = read_path(node);
    if (!text) return std::nullopt;
    if (*text == "off") return KvSaving{false, {}};
    if (*text == "auto") return KvSaving{};
    return KvSaving{true, *text};
  };
  return {"off | auto | a folder", read, [](const KvSaving& saving) -> nlohmann::ordered_json {
            if (!saving.on) return "off";
            return saving.folder.empty() ? "auto" : saving.folder.string();
          }};
}

Codec<CpSetting> cp_setting(int32_t highest) {
  const Codec<int32_t> degree = whole32(1, highest);
  const auto read = [degree](const YamlNode& node) -> std::optional<CpSetting> {
    if (node.kind == YamlNode::Kind::scalar && node.text == "auto") return CpSetting{};
    if (node.kind == YamlNode::Kind::scalar && node.text == "elastic") return CpSetting{{}, true};
    const auto value = degree.read(node);
    if (!value) return std::nullopt;
    return CpSetting{*value, false};
  };
  const auto write = [](const CpSetting& setting) -> nlohmann::ordered_json {
    if (setting.elastic) return "elastic";
    if (!setting.degree) return "auto";
    return *setting.degree;
  };
  return {"auto | elastic | " + degree.allowed, read, write};
}

Codec<ElasticRange> elastic_range(int32_t highest) {
  const Codec<int32_t> least = whole32(1, highest);
  const Codec<std::optional<int32_t>> most = auto_or(least);
  const auto read = [least, most](const YamlNode& node) -> std::optional<ElasticRange> {
    if (node.kind != YamlNode::Kind::map) return std::nullopt;
    ElasticRange range;
    for (const YamlNode& child : node.children) {
      if (child.key == "min") {
        const auto value = least.read(child);
        if (!value) return std::nullopt;
        range.min = *value;
      } else if (child.key == "max") {
        const auto value = most.read(child);
        if (!value) return std::nullopt;
        range.max = *value;
      } else {
        return std::nullopt;
      }
    }
    if (range.max && *range.max < range.min) return std::nullopt;
    return range;
  };
  const auto write = [most](const ElasticRange& range) -> nlohmann::ordered_json {
    return {{"min", range.min}, {"max", most.write(range.max)}};
  };
  return {"{min: " + least.allowed + ", max: auto or one of at least min}", read, write};
}

Codec<DropSetting> drop_setting() {
  constexpr double highest = 0.95;
  const auto read_share = [](const YamlNode& node) -> std::optional<double> {
    const auto share = plain_number<double>(node);
    return share && *share >= 0 && *share <= highest ? share : std::nullopt;
  };
  const auto read = [read_share](const YamlNode& node) -> std::optional<DropSetting> {
    if (node.kind == YamlNode::Kind::map) {
      if (node.children.size() != 1) return std::nullopt;
      const YamlNode& child = node.children[0];
      if (child.key == "file") {
        const auto file = read_path(child);
        return file ? std::optional(DropSetting{0, *file}) : std::nullopt;
      }
      if (child.key != "layers" || child.kind != YamlNode::Kind::list) return std::nullopt;
      DropSetting drop;
      for (const YamlNode& layer : child.children) {
        const auto shares = read_list<double>(layer, read_share);
        if (!shares || shares->empty()) return std::nullopt;
        drop.layers.push_back(*shares);
      }
      return drop.layers.empty() ? std::nullopt : std::optional(drop);
    }
    const auto share = read_share(node);
    if (!share) return std::nullopt;
    return DropSetting{*share, {}};
  };
  const auto write = [](const DropSetting& drop) -> nlohmann::ordered_json {
    if (!drop.file.empty()) return {{"file", drop.file.string()}};
    if (drop.layers.empty()) return drop.share;
    nlohmann::ordered_json layers = nlohmann::ordered_json::array();
    for (const std::vector<double>& shares : drop.layers)
      layers.push_back(shares.size() == 1 ? nlohmann::ordered_json(shares.front())
                                          : nlohmann::ordered_json(shares));
    return {{"layers", layers}};
  };
  return {fmt::format("a share from 0 to {} | {{file: a path}} | {{layers: a list with a share, or "
                      "a list of one for each KV head, for each layer}}",
                      highest),
          read, write};
}

Codec<parallel::Micros> micro_partitions() {
  constexpr int32_t highest = 16;
  constexpr size_t most = 3;  // levels from 2 on
  const Codec<int32_t> number = whole32(1, highest);
  const auto read = [number](const YamlNode& node) -> std::optional<parallel::Micros> {
    const auto micros = read_list<int32_t>(node, number.read);
    if (!micros || micros->empty() || micros->size() > most) return std::nullopt;
    return parallel::Micros(micros->begin(), micros->end());
  };
  const auto write = [](const parallel::Micros& micros) -> nlohmann::ordered_json {
    if (micros.size() == 1) return micros.front();
    return micros;
  };
  return {fmt::format("{} | a list of up to {} such, for levels from 2 on", number.allowed, most),
          read, write};
}

Codec<AttentionGoal> attention_goal() {
  constexpr double shortest_s = 0.001;
  const Codec<double> time = duration(shortest_s);
  const auto read = [time](const YamlNode& node) -> std::optional<AttentionGoal> {
    if (node.kind == YamlNode::Kind::scalar && node.text == "off") return AttentionGoal{};
    if (node.kind != YamlNode::Kind::map) return std::nullopt;
    AttentionGoal goal;
    for (const YamlNode& child : node.children) {
      if (child.key == "loss") {
        goal.loss = plain_number<double>(child);
        if (!goal.loss || !std::isfinite(*goal.loss) || *goal.loss < 0) return std::nullopt;
      } else if (child.key == "ttft") {
        goal.ttft_s = time.read(child);
        if (!goal.ttft_s) return std::nullopt;
      } else if (child.key == "retrieval") {
        goal.retrieval = plain_number<double>(child);
        if (!goal.retrieval || !(*goal.retrieval >= 0 && *goal.retrieval <= 1)) return std::nullopt;
      } else {
        return std::nullopt;
      }
    }
    if (goal.loss.has_value() == goal.ttft_s.has_value()) return std::nullopt;
    return goal;
  };
  const auto write = [time](const AttentionGoal& goal) -> nlohmann::ordered_json {
    if (!goal.loss && !goal.ttft_s) return "off";
    nlohmann::ordered_json written;
    if (goal.loss) written["loss"] = *goal.loss;
    if (goal.ttft_s) written["ttft"] = time.write(*goal.ttft_s);
    if (goal.retrieval) written["retrieval"] = *goal.retrieval;
    return written;
  };
  return {"off | {loss: a number of at least 0} | {ttft: " + time.allowed +
              "}, either with retrieval: a share from 0 to 1",
          read, write};
}

Codec<Precision> weight_precision(const Words<Precision>& words) {
  const Codec<Precision> plain = word(words);
  const auto read = [plain](const YamlNode& node) -> std::optional<Precision> {
    if (node.kind != YamlNode::Kind::map) return plain.read(node);
    if (node.children.size() != 1) return std::nullopt;
    const YamlNode& child = node.children[0];
    const bool is_fp8 = child.kind == YamlNode::Kind::scalar && child.text == "fp8";
    if (child.key != "ffn" || !is_fp8) return std::nullopt;
    return Precision::fp8_ffn;
  };
  const auto write = [plain](Precision value) -> nlohmann::ordered_json {
    if (value == Precision::fp8_ffn) return {{"ffn", "fp8"}};
    return plain.write(value);
  };
  return {plain.allowed + " | {ffn: fp8}", read, write};
}

Codec<BatchGoal> batch_goal() {
  constexpr double shortest_s = 0.001;
  const Codec<double> time = duration(shortest_s);
  const auto words =
      auto_or(word<Objective>({{"throughput", Objective::throughput}, {"ttft", Objective::ttft}}));
  const auto read = [time, words](const YamlNode& node) -> std::optional<BatchGoal> {
    if (node.kind != YamlNode::Kind::map) {
      const auto objective = words.read(node);
      if (!objective) return std::nullopt;
      return BatchGoal{*objective};
    }
    if (node.children.size() != 1 || node.children[0].key != "tbt") return std::nullopt;
    const auto tbt_s = time.read(node.children[0]);
    if (!tbt_s) return std::nullopt;
    return BatchGoal{{}, tbt_s};
  };
  const auto write = [time, words](const BatchGoal& goal) -> nlohmann::ordered_json {
    if (goal.tbt_s) return {{"tbt", time.write(*goal.tbt_s)}};
    return words.write(goal.objective);
  };
  return {words.allowed + " | {tbt: " + time.allowed + "}", read, write};
}

Codec<std::vector<std::filesystem::path>> paths() {
  return {"a list of paths or patterns (*, ?, […])",
          [](const YamlNode& node) -> std::optional<std::vector<std::filesystem::path>> {
            auto values = read_list<std::filesystem::path>(node, read_path);
            if (!values || values->empty()) return std::nullopt;
            return values;
          },
          [](const std::vector<std::filesystem::path>& values) -> nlohmann::ordered_json {
            auto list = nlohmann::ordered_json::array();
            for (const auto& value : values) list.push_back(value.string());
            return list;
          }};
}

Codec<std::vector<int32_t>> token_ids() {
  return {"a list of token ids, each at least 0",
          [](const YamlNode& node) { return read_list<int32_t>(node, whole32(0).read); },
          [](const std::vector<int32_t>& values) -> nlohmann::ordered_json { return values; }};
}

Codec<std::string> text() {
  return {"a text",
          [](const YamlNode& node) -> std::optional<std::string> {
            if (node.kind != YamlNode::Kind::scalar || node.text.empty() || !io::is_utf8(node.text))
              return std::nullopt;
            return node.text;
          },
          [](const std::string& value) -> nlohmann::ordered_json { return value; }};
}

Codec<std::vector<std::string>> texts() {
  const auto read_text = text().read;
  return {"a list of texts, none of them empty",
          [read_text](const YamlNode& node) { return read_list<std::string>(node, read_text); },
          [](const std::vector<std::string>& values) -> nlohmann::ordered_json {
            auto list = nlohmann::ordered_json::array();
            for (const std::string& value : values) list.push_back(value);
            return list;
          }};
}

Codec<RopeOverride> rope_override() {
  const Codec<model::RopeScaling> kind =
      word<model::RopeScaling>({{"yarn", model::RopeScaling::yarn},
                                {"linear", model::RopeScaling::linear},
                                {"dynamic", model::RopeScaling::dynamic}});
  const auto read = [kind](const YamlNode& node) -> std::optional<RopeOverride> {
    if (node.kind != YamlNode::Kind::map || node.children.size() != 2) return std::nullopt;
    RopeOverride scaling;
    for (const YamlNode& child : node.children) {
      if (child.key == "type") {
        const auto value = kind.read(child);
        if (!value) return std::nullopt;
        scaling.kind = *value;
      } else if (child.key == "factor") {
        const auto value = plain_number<double>(child);
        if (!value || !std::isfinite(*value) || *value < 1) return std::nullopt;
        scaling.factor = *value;
      } else {
        return std::nullopt;
      }
    }
    return scaling;
  };
  const auto write = [kind](const RopeOverride& scaling) -> nlohmann::ordered_json {
    return {{"type", kind.write(scaling.kind)}, {"factor", scaling.factor}};
  };
  return {"{type: " + kind.allowed + ", factor: a number of at least 1}", read, write};
}

}  // namespace pecia::job
