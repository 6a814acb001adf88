// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/sparse_totals.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace pecia::attention {

using parallel::LevelSequence;
using parallel::PartTokens;

namespace {

/// Of rows that see `before` tokens and each other, in their order.
double causal_pairs(int64_t before, int64_t rows) {
  return static_cast<double>(rows) *
         (static_cast<double>(before) + 0.5 * static_cast<double>(rows + 1));
}

PartTokens sum_of(const LevelSequence& sequence) {
  PartTokens sum;
  for (const PartTokens& part : sequence) sum.cached += part.cached, sum.rows += part.rows;
  return sum;
}

/// What Ulysses sends from one rank to one other. SP is the P ranks of the ring, which have N / P of
/// the N rows each. Each of them attends all rows with H / P of the H query heads and their KV heads,
/// which are G / P of G, but at least one: a head goes to several ranks if there are more ranks than
/// heads. So to each other rank there go
///
///     queries            N / P · H / P            · head_dim · size of the wire's type
///     keys and values    N / P · max(G / P, 1)    · bytes of a key and a value in the cache
///     outputs            N / P · H / P            · head_dim · size of the wire's type
///
/// Cached tokens stay where their heads are. Element types are those of levels. Heads that P does
/// not divide count as if they could be cut.
double ulysses_bytes(int64_t rows, int ranks, const CountedShape& shape) {
  const double heads = static_cast<double>(shape.num_heads) / ranks;
  const double kv_heads = std::max(1.0, static_cast<double>(shape.kv.num_kv_heads) / ranks);
  const auto query = static_cast<double>(shape.kv.head_dim * size_of(shape.wire));
  const auto key_and_value =
      static_cast<double>(shape.kv.layer_bytes_per_token() / shape.kv.num_kv_heads);
  return static_cast<double>(rows) / ranks * (2 * heads * query + kv_heads * key_and_value);
}

/// Tokens whose keys a level keeps, the mean over KV heads.
int64_t mean_kept(const parallel::LevelRule& rule, int level, const PartTokens& part,
                  int64_t kv_heads) {
  const auto of_head = [&](int64_t head) {
    return kept_cached(rule, level, part, head) + kept_row_keys(rule, level, part, head);
  };
  if (rule.key_drops.empty()) return of_head(0);
  int64_t sum = 0;
  for (int64_t head = 0; head < kv_heads; ++head) sum += of_head(head);
  return (sum + kv_heads / 2) / kv_heads;
}

void add_to(LinkBytes& sum, const LinkBytes& other) {
  for (size_t link = 0; link < sum.size(); ++link) sum[link] += other[link];
}

/// Adds bytes that go to each other rank.
void add_to_others(LinkBytes& sum, double bytes, int rank,
                   const std::vector<comm::LinkLevel>& links) {
  for (int other = 0; other < std::ssize(links); ++other)
    if (other != rank) sum[static_cast<size_t>(links[other])] += bytes;
}

double all_of(const LinkBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), 0.0);
}

}  // namespace

LayerCount count_layer(const parallel::Levels& levels, const parallel::LevelRule& rule,
                       const std::vector<LevelSequence>& sequences, const LevelLayout& layout,
                       const parallel::PartsHere& here, const CountedShape& shape) {
  const int ranks = levels.ranks();
  LayerCount count;
  count.levels.resize(levels.count());
  int64_t rows = 0;
  for (const LevelSequence& sequence : sequences) {
    const PartTokens all = sum_of(sequence);
    rows += all.rows;
    const auto heads = static_cast<double>(shape.num_heads);
    count.dense_pairs += heads * causal_pairs(all.cached, all.rows) * here.count / ranks;
    for (int part = here.first; part < here.end(); ++part) {
      const PartTokens& own = sequence[part];
      count.tokens += own.cached + own.rows;
      count.levels[0].pairs += heads * causal_pairs(own.cached, own.rows);
      for (int level = 1; level <= levels.count(); ++level)
        count.levels[level - 1].kept += mean_kept(rule, level, own, shape.kv.num_kv_heads);
    }
  }
  if (here.count < ranks)
    add_to_others(count.dense_by_link, ulysses_bytes(rows, ranks, shape), here.first, shape.links);

  const int64_t group = shape.num_heads / shape.kv.num_kv_heads;
  const int64_t key_bytes = shape.kv.layer_bytes_per_token() / shape.kv.num_kv_heads;
  const int64_t query_bytes = group * shape.kv.head_dim * size_of(shape.wire);
  const int64_t output_bytes = query_bytes + group * size_of(DType::fp32);  // with log-sums
  for (const LevelLayout::Step& step : layout.steps) {
    LevelCount& of = count.levels[step.level - 1];
    of.pairs += static_cast<double>(group) * step.pairs;
    const auto send = [&](int rank, int64_t bytes, int64_t& sum) {
      sum += bytes;
      count.by_link[static_cast<size_t>(shape.links[rank])] += static_cast<double>(bytes);
    };
    for (const LevelLayout::TokensOut& out : step.tokens_out)
      send(out.rank, out.num_keys * key_bytes + out.num_queries * query_bytes, of.token_bytes);
    for (const LevelLayout::ResultsOut& out : step.results_out)
      send(out.rank, out.count * output_bytes, of.output_bytes);
  }
  return count;
}

SparseTotals SparseTotals::of(const parallel::Levels& levels, int64_t layers) {
  SparseTotals totals;
  for (int level = 1; level <= levels.count(); ++level)
    totals.segment_ranks.push_back(levels.most_ranks(level));
  totals.levels.resize(levels.count());
  totals.layers.resize(layers, {0, std::vector<int64_t>(levels.count())});
  return totals;
}

void SparseTotals::add_pass(const std::vector<LevelSequence>& sequences) {
  ++passes;
  for (const LevelSequence& sequence : sequences) rows += sum_of(sequence).rows;
}

void SparseTotals::add(int64_t layer, const LayerCount& count) {
  Layer& of_layer = layers.at(layer);
  of_layer.tokens += count.tokens;
  for (size_t i = 0; i < levels.size(); ++i) {
    const LevelCount& of = count.levels.at(i);
    levels[i].pairs += of.pairs;
    levels[i].token_bytes += of.token_bytes;
    levels[i].output_bytes += of.output_bytes;
    levels[i].kept += of.kept;
    of_layer.kept.at(i) += of.kept;
  }
  add_to(by_link, count.by_link);
  dense_pairs += count.dense_pairs;
  add_to(dense_by_link, count.dense_by_link);
}

void SparseTotals::add(const WeighCost& cost, int rank, const std::vector<comm::LinkLevel>& links) {
  importance_bytes += cost.sent_bytes;
  importance_pairs += cost.pairs;
  if (links.size() > 1)
    add_to_others(by_link,
                  static_cast<double>(cost.sent_bytes) / static_cast<double>(links.size() - 1),
                  rank, links);
}

void SparseTotals::add_importance(const LinkBytes& sent) {
  importance_bytes += std::llround(all_of(sent));
  add_to(by_link, sent);
}

SparseTotals& SparseTotals::operator+=(const SparseTotals& other) {
  const auto most = [](auto& own, const auto& from) {
    own.resize(std::max(own.size(), from.size()));
  };
  most(segment_ranks, other.segment_ranks), most(levels, other.levels), most(layers, other.layers);
  for (size_t i = 0; i < other.segment_ranks.size(); ++i)
    segment_ranks[i] = std::max(segment_ranks[i], other.segment_ranks[i]);
  for (size_t i = 0; i < other.levels.size(); ++i) {
    levels[i].pairs += other.levels[i].pairs;
    levels[i].token_bytes += other.levels[i].token_bytes;
    levels[i].output_bytes += other.levels[i].output_bytes;
    levels[i].kept += other.levels[i].kept;
  }
  for (size_t layer = 0; layer < other.layers.size(); ++layer) {
    const Layer& from = other.layers[layer];
    layers[layer].tokens += from.tokens;
    most(layers[layer].kept, from.kept);
    for (size_t i = 0; i < from.kept.size(); ++i) layers[layer].kept[i] += from.kept[i];
  }
  passes += other.passes, rows += other.rows;
  shares += other.shares;
  importance_bytes += other.importance_bytes, importance_pairs += other.importance_pairs;
  add_to(by_link, other.by_link);
  dense_pairs += other.dense_pairs;
  add_to(dense_by_link, other.dense_by_link);
  return *this;
}

double SparseTotals::pairs() const {
  double sum = 0;
  for (const LevelCount& level : levels) sum += level.pairs;
  return sum;
}

double SparseTotals::sent_bytes() const {
  return all_of(by_link);
}

double SparseTotals::dense_bytes() const {
  return all_of(dense_by_link);
}

}  // namespace pecia::attention
