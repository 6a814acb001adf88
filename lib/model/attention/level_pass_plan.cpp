// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/level_pass_plan.hpp"

namespace pecia::attention {

using parallel::PartTokens;

namespace {

/// Attention of a part's kept tokens to each other. They count as standing next to each other, since
/// only their order matters.
void plan_inner(const LevelPass& pass, LevelPassPlan& plan) {
  const int64_t head_dim = pass.shape.kv.head_dim;
  for (int level = 2; level <= pass.levels.count(); ++level) {
    OwnAttention& inner = plan.inner.emplace_back();
    double pairs = 0;
    for (size_t i = 0; i < pass.sequences.size(); ++i)
      for (int part = pass.here.first; part < pass.here.end(); ++part) {
        const auto sequence = static_cast<int>(i);
        const PartTokens& tokens = pass.sequences[i].parts[part];
        const int64_t cached = kept_cached(plan.rule, level, tokens);
        const int64_t rows = kept_rows(plan.rule, level, tokens);
        for (int64_t head = 0; head < pass.shape.kv.num_kv_heads && rows > 0; ++head) {
          inner.call.items.push_back({inner.queries, rows, std::ssize(inner.call.runs), 1});
          inner.call.runs.push_back({inner.keys * head_dim, 0, cached + rows, 0});
          for (int64_t row = 0; row < rows; ++row) inner.call.positions.push_back(cached + row);
          inner.cached.push_back({sequence, part, head, {0, cached}, inner.keys});
          inner.rows.push_back({sequence, part, head, {0, rows}, inner.keys + cached});
          inner.asking.push_back({sequence, part, head, {0, rows}, inner.queries});
          inner.merged.push_back(inner.asking.back());
          inner.keys += cached + rows;
          inner.queries += rows;
          pairs += static_cast<double>(rows) * (static_cast<double>(cached) + 0.5 * (rows + 1));
        }
      }
    inner.call.flops[0] = 4 * pairs * static_cast<double>(pass.group() * head_dim);
    plan.count.levels[level - 1].pairs += static_cast<double>(pass.group()) * pairs;
  }
}

}  // namespace

LevelPassPlan plan_levels(const LevelPass& pass, const parallel::LevelRule& rule) {
  std::vector<parallel::LevelSequence> parts;
  for (const SequenceParts& sequence : pass.sequences) parts.push_back(sequence.parts);
  const int64_t kv_heads = pass.shape.kv.num_kv_heads;
  const auto micro = [&](int level) { return parallel::micro_at(pass.micros, level); };
  const auto steps = pass.here.count > 1
                         ? head_parallel_steps(pass.levels, rule, parts, kv_heads)
                         : level_steps(pass.levels, rule, parts, kv_heads, micro, pass.rank);
  LevelPassPlan plan{
      rule, lay_out(pass.levels, rule, parts, steps, pass.here, pass.shape.kv.head_dim), {}, {}, {},
      0};
  plan.count = count_layer(pass.levels, rule, parts, plan.layout, pass.here, pass.shape);
  if (rule.geometry == parallel::Geometry::nested) plan_inner(pass, plan);
  return plan;
}

/// Results count where no level shows the rows the sinks: the lowest level that has both parts drops
/// the rows.
void plan_sinks(const LevelPass& pass, int64_t most, LevelPassPlan& plan) {
  OwnAttention& sinks = plan.sinks;
  LevelCount& count = plan.count.levels[0];
  const int64_t kv_heads = pass.shape.kv.num_kv_heads, head_dim = pass.shape.kv.head_dim;
  double pairs = 0;
  for (size_t i = 0; i < pass.sequences.size(); ++i) {
    const auto index = static_cast<int>(i);
    const SequenceParts& sequence = pass.sequences[i];
    const int64_t first_key = sinks.keys;
    sinks.keys += sequence.sinks * kv_heads;
    if (pass.here.has(sequence.sink_part)) {
      auto& own = sequence.parts[sequence.sink_part].first_cached > 0 ? sinks.cached : sinks.rows;
      for (int64_t head = 0; head < kv_heads && sequence.sinks > 0; ++head)
        own.push_back({index,
                       sequence.sink_part,
                       head,
                       {0, sequence.sinks},
                       first_key + head * sequence.sinks});
      const int64_t bytes = sequence.sinks * pass.shape.kv.layer_bytes_per_token();
      count.token_bytes += bytes * (pass.ranks - 1);
      for (int other = 0; other < pass.ranks; ++other)
        if (other != pass.rank)
          plan.count.by_link[static_cast<size_t>(pass.shape.links[other])] +=
              static_cast<double>(bytes);
    }
    for (int part = pass.here.first; part < pass.here.end(); ++part) {
      const int64_t rows = sequence.parts[part].rows;
      if (part == sequence.sink_part || rows == 0 || sequence.sinks == 0) continue;
      int level = 2;
      while (level <= pass.levels.count() && !pass.levels.together(level, part, sequence.sink_part))
        ++level;
      const int64_t kept =
          level <= pass.levels.count() ? kept_rows(plan.rule, level, sequence.parts[part]) : 0;
      for (int64_t head = 0; head < kv_heads; ++head) {
        sinks.call.items.push_back({sinks.queries, rows, std::ssize(sinks.call.runs), 1});
        sinks.call.runs.push_back(
            {(first_key + head * sequence.sinks) * head_dim, 0, sequence.sinks, 0});
        sinks.asking.push_back({index, part, head, {0, rows}, sinks.queries});
        if (kept < rows)
          sinks.merged.push_back({index, part, head, {kept, rows}, sinks.queries + kept});
        sinks.queries += rows;
        pairs += static_cast<double>(rows * sequence.sinks);
        plan.need_pairs += static_cast<double>(pass.group() * kept * sequence.sinks);
      }
    }
  }
  sinks.call.positions.assign(sinks.queries, most);
  sinks.call.flops[0] = 4 * pairs * static_cast<double>(pass.group() * head_dim);
  count.pairs += static_cast<double>(pass.group()) * pairs - plan.need_pairs;
}

}  // namespace pecia::attention
