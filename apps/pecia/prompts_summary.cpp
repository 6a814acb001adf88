// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/pecia/printable.hpp"
#include "apps/pecia/summaries.hpp"
#include "lib/base/core/counted.hpp"
#include "lib/base/core/error.hpp"
#include "lib/files/prompts/prompts.hpp"

namespace pecia::app {

int64_t percentile(const std::vector<int64_t>& ascending, int percent) {
  PECIA_CHECK(!ascending.empty() && percent >= 1 && percent <= 100, "percentile {} of {} values",
              percent, ascending.size());
  const size_t rank = (ascending.size() * static_cast<size_t>(percent) + 99) / 100;
  return ascending[rank - 1];
}

nlohmann::ordered_json spread(const std::vector<int64_t>& ascending) {
  return {{"min", ascending.front()},
          {"p50", percentile(ascending, 50)},
          {"p90", percentile(ascending, 90)},
          {"p99", percentile(ascending, 99)},
          {"max", ascending.back()}};
}

std::string spread_text(const nlohmann::ordered_json& spread) {
  const auto number = [&](const char* key) { return spread[key].get<int64_t>(); };
  return fmt::format("min {}, median {}, p90 {}, p99 {}, max {}", number("min"), number("p50"),
                     number("p90"), number("p99"), number("max"));
}

nlohmann::ordered_json summarize_prompts(const std::filesystem::path& shard_path) {
  const io::PromptShard shard(shard_path);
  std::vector<int64_t> lengths;
  int64_t max_new_tokens = 0, temperatures = 0, seeds = 0;
  for (const io::PromptRequest& request : shard.requests())
    for (const io::PromptTurn& turn : request.turns) {
      lengths.push_back(turn.num_tokens());
      max_new_tokens += turn.max_new_tokens.has_value();
      temperatures += turn.temperature || turn.top_p;
      seeds += turn.seed.has_value();
    }
  std::sort(lengths.begin(), lengths.end());

  nlohmann::ordered_json summary{
      {"kind", "prompts"},
      {"path", shard_path.string()},
      {"schema", "pecia.prompts/1"},
      {"followup", shard.followup() == io::Followup::fork ? "fork" : "chain"},
      {"created_by", shard.created_by()},
      {"tokenizer_sha256", shard.tokenizer_sha256()},
      {"vocab_size", shard.vocab_size()},
      {"requests", shard.requests().size()},
      {"turns", lengths.size()},
      {"tokens", std::accumulate(lengths.begin(), lengths.end(), int64_t{0})},
      {"turns_with_max_new_tokens", max_new_tokens},
      {"turns_with_sampling", temperatures},
      {"turns_with_seed", seeds}};
  if (!lengths.empty()) summary["turn_tokens"] = spread(lengths);
  return summary;
}

std::string prompts_text(const nlohmann::ordered_json& summary) {
  const auto text = [&](const char* key) {
    const auto value = summary[key].get<std::string>();
    return value.empty() ? std::string("not said") : printable(value);
  };
  std::string result = fmt::format("{}: prompt shard, {}\n", text("path"), text("schema"));
  result +=
      fmt::format("  {}, {} ({}), {}\n", counted(summary["requests"].get<int64_t>(), "request"),
                  counted(summary["turns"].get<int64_t>(), "turn"), text("followup"),
                  counted(summary["tokens"].get<int64_t>(), "token"));
  if (summary.contains("turn_tokens"))
    result += fmt::format("  tokens per turn: {}\n", spread_text(summary["turn_tokens"]));
  result += fmt::format("  own max_new_tokens: {}, own sampling: {}, own seed: {}\n",
                        counted(summary["turns_with_max_new_tokens"].get<int64_t>(), "turn"),
                        summary["turns_with_sampling"].get<int64_t>(),
                        summary["turns_with_seed"].get<int64_t>());
  result += fmt::format("  tokenizer {}, vocabulary {}, made by {}\n", text("tokenizer_sha256"),
                        summary["vocab_size"].get<int64_t>(), text("created_by"));
  return result;
}

}  // namespace pecia::app
