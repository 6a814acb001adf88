// SPDX-License-Identifier: Apache-2.0
/// Attention by levels over ranks against the definition in plain loops: which keys a query sees at
/// which level, and softmax over all of them in double. The ranks share tokens, or heads; the
/// definition is the same.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "lib/base/core/random.hpp"
#include "lib/model/attention/attention.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/ranks/parallel/heads.hpp"
#include "tests/attention/groups.hpp"
#include "tests/attention/stored_vectors.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/full_matrix.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::attention {
namespace {

using parallel::AttentionExchange;
using parallel::Geometry;
using parallel::LevelRule;
using parallel::PassSequence;

constexpr int64_t head_dim = 8, layers = 4, capacity = 3000;

/// What the ranks of a test share out.
enum class Share { tokens, heads };

struct Heads {
  int64_t query = 6, kv = 3;
};
/// Heads that so many ranks can share. Of 4, 6 and 8 ranks several have the same KV head.
Heads heads_of(Share share, int ranks) {
  return share == Share::heads && ranks % 3 != 0 ? Heads{8, 2} : Heads{};
}

/// The definition sees keys and values as they are cached, so their type adds nothing. A score is a
/// sum of head_dim products, off by about head_dim · 2⁻²⁴ of scores up to 5: 2.4e-6 of a key's
/// weight, of values up to 4.
constexpr double tolerance = 1e-5;

std::vector<float> vector_of(int64_t kind, int64_t layer, int64_t sequence, int64_t position,
                             int64_t count) {
  return test::random_floats(
      count, static_cast<uint64_t>(((kind * 11 + layer) * 101 + sequence) * 65'537 + position));
}

/// A token of a sequence at a rank.
struct Token {
  int64_t sequence = 0, position = 0;  ///< of the sequence that holds it, which may be the parent
  bool is_row = false;
};

/// The parts of a sequence, and what levels keep of them.
struct Parts {
  std::vector<std::vector<Token>> tokens;  ///< by part: cached ones, then rows
  parallel::LevelSequence counts;
};

class Levelled {
 public:
  Levelled(comm::Communicator& comm, Share share, const parallel::SparseSetting& setting,
           const std::vector<comm::RackServerGpu>& places, DType dtype)
      : comm_(comm),
        share_(share),
        heads(heads_of(share, comm.size()).query),
        kv_heads(heads_of(share, comm.size()).kv),
        own_(share == Share::tokens
                 ? parallel::head_shard(heads, kv_heads, 1, 0)
                 : parallel::head_shard(heads, kv_heads, comm.size(), comm.rank())),
        here_(share == Share::tokens ? parallel::PartsHere{comm.rank(), 1}
                                     : parallel::PartsHere{0, comm.size()}),
        setting_(setting),
        levels_(parallel::levels_of(comm::server_of_rank(places), comm::rack_of_rank(places),
                                    setting.levels)),
        dtype_(dtype),
        compute_(1, kernels::make_reference_backend()),
        cache_({layers, own_.kv.size(), head_dim, dtype}, capacity, *compute_.device),
        groups_(share == Share::tokens ? ring_groups(comm, places) : head_groups(comm, places)),
        attention_(groups_, {heads, kv_heads}, std::vector<kernels::Window>(layers), compute_,
                   cache_, kernels::RowInvariant::no, setting) {}

  void add(int64_t sequence, std::optional<int64_t> parent = {}) {
    attention_.ledger().add(sequence, std::vector<int64_t>(instances(), 700), parent);
  }
  int64_t length(int64_t sequence) const { return attention_.ledger().map().length(sequence); }
  const parallel::Levels& levels() const { return levels_; }
  int64_t dropped_pairs() const { return dropped_; }
  int64_t sent_early() const { return sent_early_; }
  int64_t sent_late() const { return sent_late_; }

  /// Runs all layers of a pass and checks every output.
  void pass(const std::vector<PassSequence>& pass, AttentionExchange ring) {
    const parallel::KvMap before = attention_.ledger().map();
    const int64_t sent = comm_.traffic().bytes;
    const SparseTotals totals = attention_.sparse_totals();
    seen_ = 0;
    attention_.begin_pass({{parallel::team_of_all(instances(), ring), pass}}, ++passes_);
    std::vector<Parts> parts;
    for (const PassSequence& rows : pass) parts.push_back(parts_of(before, rows));
    Known known;
    for (int64_t layer = 0; layer < layers; ++layer) {
      const std::vector<float> out = run(layer, pass);
      if (ring != AttentionExchange::levels) continue;
      check(layer, pass, parts, known, out);
      Known next{weigh(layer, pass, parts, known), known.need};
      learn_need(layer, parts, known, next.need);
      known = std::move(next);
    }
    check_totals(totals, comm_.traffic().bytes - sent, ring);
  }

 private:
  int instances() const { return share_ == Share::tokens ? comm_.size() : 1; }

  std::vector<std::vector<Token>> tokens_of(const parallel::KvMap& before,
                                            const PassSequence& rows) const {
    std::vector<std::vector<Token>> tokens(comm_.size());
    for (int instance = 0; instance < instances(); ++instance) {
      for (const int64_t member : before.lineage(rows.sequence))
        for (const auto& range : before.ranges(member, instance))
          for (int64_t i = 0; i < range.count; ++i)
            tokens[instance].push_back({member, range.position(i), false});
      for (const auto& range : rows_of(rows, instances(), instance))
        for (int64_t position = range.begin; position < range.end; ++position)
          tokens[instance].push_back({rows.sequence, position, true});
    }
    if (share_ == Share::tokens) return tokens;
    const std::vector<Token> all = std::move(tokens[0]);
    const auto count = static_cast<int64_t>(all.size());
    for (int part = 0; part < comm_.size(); ++part)
      tokens[part].assign(all.begin() + count * part / comm_.size(),
                          all.begin() + count * (part + 1) / comm_.size());
    return tokens;
  }

  Parts parts_of(const parallel::KvMap& before, const PassSequence& rows) const {
    Parts parts{tokens_of(before, rows), {}};
    const int64_t all = before.length(rows.sequence) + rows.count;
    for (const std::vector<Token>& tokens : parts.tokens) {
      parallel::PartTokens& counts = parts.counts.emplace_back();
      for (const Token& token : tokens) {
        ++(token.is_row ? counts.rows : counts.cached);
        counts.last += token.is_row && token.position >= all - TokenImportance::last_samples;
      }
      if (has_borders()) {
        counts.first = std::min<int64_t>(counts.rows, 32);
        counts.last = std::max(counts.last, counts.first);
      }
      (rows.first > 0 ? counts.first_cached : counts.first) =
          std::max(rows.first > 0 ? 0 : counts.first, sinks_of(tokens));
    }
    return parts;
  }

  std::vector<float> run(int64_t layer, const std::vector<PassSequence>& pass) {
    std::vector<float> q, k, v;
    const auto append = [](std::vector<float>& to, const std::vector<float>& from,
                           parallel::HeadRange own) {
      to.insert(to.end(), from.begin() + own.begin * head_dim, from.begin() + own.end * head_dim);
    };
    const int instance = share_ == Share::tokens ? comm_.rank() : 0;
    for (const PassSequence& rows : pass)
      for (const auto& range : rows_of(rows, instances(), instance))
        for (int64_t position = range.begin; position < range.end; ++position) {
          append(q, vector_of(1, layer, rows.sequence, position, heads * head_dim), own_.q);
          append(k, vector_of(2, layer, rows.sequence, position, kv_heads * head_dim), own_.kv);
          append(v, vector_of(3, layer, rows.sequence, position, kv_heads * head_dim), own_.kv);
        }
    const auto rows = static_cast<int64_t>(q.size()) / (own_.q.size() * head_dim);
    std::vector<float> out(q.size(), NAN);
    const auto view = [&](std::vector<float>& data, int64_t count) {
      return TensorView(static_cast<void*>(data.data()), DType::fp32, {rows, count, head_dim});
    };
    // Where the layer is begun, keys leave before there are queries.
    const int64_t sent = comm_.traffic().bytes;
    if (layer % 2 == 0) attention_.begin_layer(layer);
    attention_.start_keys(view(k, own_.kv.size()), view(v, own_.kv.size()));
    (layer % 2 == 0 ? sent_early_ : sent_late_) += comm_.traffic().bytes - sent;
    attention_.run(layer, view(q, own_.q.size()), view(out, own_.q.size()));
    return out;
  }

  double score(int64_t layer, int64_t head, const Token& query, const Token& key) {
    const auto& q = cached(1, layer, query, heads * head_dim);
    const auto& k = cached(2, layer, key, kv_heads * head_dim);
    double sum = 0;
    for (int64_t d = 0; d < head_dim; ++d)
      sum += double{q[head * head_dim + d]} * k[head / group() * head_dim + d];
    return sum / std::sqrt(double{head_dim});
  }
  const std::vector<float>& cached(int64_t kind, int64_t layer, const Token& token, int64_t count) {
    auto& vector =
        vectors_.at(((kind * layers + layer) * 5 + token.sequence) * 1000 + token.position);
    if (vector.empty()) {
      vector = vector_of(kind, layer, token.sequence, token.position, count);
      if (kind != 1) vector = stored_vectors(std::move(vector), dtype_, head_dim);
    }
    return vector;
  }

  using Importance =
      std::map<std::pair<size_t, int64_t>, std::vector<float>>;  ///< by sequence, head
  /// What the layers before say.
  struct Known {
    Importance importance;  ///< by token of all ranks
    /// Share of a row's attention beyond its rank and the sinks, by sequence, rank, and token.
    std::map<std::tuple<size_t, int, size_t>, double> need;
  };

  /// The rule with the shares of all heads.
  LevelRule rule_at(int64_t layer) const { return setting_.rule_of(layer, layers, 0, kv_heads); }

  bool has_borders() const {
    return setting_.rule.geometry == Geometry::disjoint && levels_.count() > 1;
  }
  /// How many of a rank's first tokens are the first ones of the sequence: cached ones, or if there
  /// are none, rows.
  int64_t sinks_of(const std::vector<Token>& tokens) const {
    const int64_t most =
        std::min(setting_.first_tokens.value_or(has_borders() ? 16 : 0), std::ssize(tokens));
    int64_t sinks = 0;
    while (sinks < most && tokens[sinks].position == sinks &&
           tokens[sinks].is_row == tokens[0].is_row)
      ++sinks;
    return sinks;
  }

  /// The `count` most important tokens of some, with the first and last ones.
  std::vector<bool> most_important(std::span<const double> importance, int64_t count, int64_t first,
                                   int64_t last) {
    const auto tokens = std::ssize(importance);
    std::vector<std::pair<double, int64_t>> order;
    for (int64_t i = 0; i < tokens; ++i)
      order.emplace_back(i < first || i >= tokens - last ? -INFINITY : -importance[i], i);
    std::sort(order.begin(), order.end());
    std::vector<bool> kept(tokens);
    for (int64_t i = 0; i < count; ++i) kept[order[i].second] = true;
    if (first + last < count && count < tokens)
      least_gap_ = std::min(least_gap_, 1 - order[count].first / order[count - 1].first);
    return kept;
  }

  /// Which keys of a rank a level keeps of a KV head.
  std::vector<bool> kept_keys(int64_t layer, int level, const parallel::PartTokens& counts,
                              int64_t kv_head, std::span<const double> importance) {
    const LevelRule rule = rule_at(layer);
    if (rule.drop == 0) return std::vector<bool>(counts.cached + counts.rows, true);
    auto all = most_important(importance.first(counts.cached),
                              kept_cached(rule, level, counts, kv_head), counts.first_cached, 0);
    const auto rows =
        most_important(importance.subspan(counts.cached),
                       kept_row_keys(rule, level, counts, kv_head), counts.first, counts.last);
    all.insert(all.end(), rows.begin(), rows.end());
    return all;
  }
  /// Which rows a level keeps as queries, by what is known of each. Cached tokens ask nothing.
  std::vector<bool> kept_queries(int64_t layer, int level, const parallel::PartTokens& counts,
                                 std::span<const double> known) {
    const LevelRule rule = rule_at(layer);
    std::vector<bool> all(counts.cached, false);
    const auto rows = rule.drop == 0 ? std::vector<bool>(counts.rows, true)
                                     : most_important(known, kept_rows(rule, level, counts),
                                                      counts.first, counts.last);
    all.insert(all.end(), rows.begin(), rows.end());
    return all;
  }

  /// Which tokens of each rank levels keep, of a head: [level − 2][rank].
  struct Kept {
    std::vector<std::vector<std::vector<bool>>> keys, queries;
  };

  Kept kept_of(int64_t layer, const Parts& parts, size_t sequence, int64_t kv_head,
               const Known& known) {
    Kept all;
    all.keys.resize(levels_.count() - 1), all.queries.resize(levels_.count() - 1);
    size_t begin = 0;
    for (int rank = 0; rank < comm_.size(); ++rank) {
      const size_t count = parts.tokens[rank].size();
      std::vector<double> own(count), need;
      if (const auto found = known.importance.find({sequence, kv_head});
          found != known.importance.end())
        std::copy_n(found->second.begin() + static_cast<std::ptrdiff_t>(begin), count, own.begin());
      begin += count;
      const bool random = setting_.selection == parallel::Selection::random;
      for (size_t token = 0; random && token < count; ++token)
        own[token] =
            static_cast<float>(uniform(mix(mix(mix(0, "selection"), static_cast<uint64_t>(layer)),
                                           static_cast<uint64_t>(rank)),
                                       token));
      if (has_borders() && rule_at(layer).drop > 0)
        for (size_t token = 0; token < count; ++token)
          if (parts.tokens[rank][token].is_row)
            need.push_back(random ? own[token] : known.need.at({sequence, rank, token}));
      for (int level = 2; level <= levels_.count(); ++level) {
        const parallel::PartTokens& counts = parts.counts[rank];
        all.keys[level - 2].push_back(kept_keys(layer, level, counts, kv_head, own));
        all.queries[level - 2].push_back(kept_queries(
            layer, level, counts,
            need.empty() ? std::span<const double>(own).subspan(counts.cached) : need));
      }
    }
    return all;
  }

  /// Calls `visit` for each key that a query of `rank` sees, once for each level.
  template <typename Visit>
  void for_each_seen(const Parts& parts, int rank, size_t query, const Kept& kept,
                     const Visit& visit) {
    const Token& of = parts.tokens[rank][query];
    const auto sees = [&](const Token& key) { return key.position <= of.position; };
    for (const Token& key : parts.tokens[rank])
      if (sees(key)) visit(key);
    for (int level = 2; level <= levels_.count(); ++level) {
      if (!kept.queries[level - 2][rank][query]) continue;
      for (int other = 0; other < comm_.size(); ++other) {
        const bool together = levels_.together(level, rank, other);
        const bool below = levels_.together(level - 1, rank, other);
        if (!together || (setting_.rule.geometry == Geometry::disjoint && below)) continue;
        const std::vector<bool>& keys = kept.keys[level - 2][other];
        for (size_t key = 0; key < keys.size(); ++key)
          if (keys[key] && sees(parts.tokens[other][key])) visit(parts.tokens[other][key]);
      }
    }
    for (int other = 0; other < comm_.size(); ++other) {
      if (other == rank) continue;
      int level = 2;
      while (level <= levels_.count() && !levels_.together(level, rank, other)) ++level;
      if (level <= levels_.count() && kept.queries[level - 2][rank][query]) continue;
      for (int64_t sink = 0; sink < sinks_of(parts.tokens[other]); ++sink)
        visit(parts.tokens[other][sink]);
    }
  }

  void check(int64_t layer, const std::vector<PassSequence>& pass, const std::vector<Parts>& parts,
             const Known& known, const std::vector<float>& out) {
    int64_t row = 0;
    for (size_t i = 0; i < pass.size(); ++i) {
      std::vector<Kept> kept;
      for (int64_t kv_head = 0; kv_head < kv_heads; ++kv_head)
        kept.push_back(kept_of(layer, parts[i], i, kv_head, known));
      for (int part = here_.first; part < here_.end(); ++part)
        for (size_t query = 0; query < parts[i].tokens[part].size(); ++query) {
          if (!parts[i].tokens[part][query].is_row) continue;
          for (int64_t head = own_.q.begin; head < own_.q.end; ++head) {
            const int64_t at = row * own_.q.size() + head - own_.q.begin;
            check(layer, parts[i], part, query, head, kept[head / group()],
                  std::span(out).subspan(at * head_dim, head_dim));
            if (testing::Test::HasFatalFailure()) return;
          }
          ++row;
        }
    }
  }

  void check(int64_t layer, const Parts& parts, int part, size_t query, int64_t head,
             const Kept& kept, std::span<const float> out) {
    const Token& of = parts.tokens[part][query];
    double weight = 0;
    std::vector<double> sum(head_dim);
    int64_t seen = 0;
    for_each_seen(parts, part, query, kept, [&](const Token& key) {
      ++seen;
      const double e = std::exp(score(layer, head, of, key));
      weight += e;
      const auto& v = cached(3, layer, key, kv_heads * head_dim);
      for (int64_t d = 0; d < head_dim; ++d) sum[d] += e * v[head / group() * head_dim + d];
    });
    dropped_ += of.position + 1 - seen;
    seen_ += static_cast<double>(seen);
    std::vector<float> expected;
    for (const double each : sum) expected.push_back(static_cast<float>(each / weight));
    ASSERT_TRUE(test::all_close(out, expected, tolerance))
        << "layer " << layer << ", sequence " << of.sequence << ", position " << of.position
        << ", head " << head << ", part " << part << " at rank " << comm_.rank()
        << "; kept tokens are more important than others by a share of at least " << least_gap_;
  }

  /// Checks what the pass added to the totals. Call it before anything else is sent.
  void check_totals(const SparseTotals& before, int64_t sent, AttentionExchange ring) {
    const SparseTotals totals = attention_.sparse_totals();
    const bool by_levels = ring == AttentionExchange::levels;
    EXPECT_EQ(totals.passes - before.passes, by_levels ? 1 : 0);
    EXPECT_EQ(totals.sent_bytes() - before.sent_bytes(), by_levels ? static_cast<double>(sent) : 0);
    EXPECT_EQ(comm_.all_reduce_sum(totals.pairs() - before.pairs()), comm_.all_reduce_sum(seen_));
  }

  /// The attention that samples pay to all tokens, by rank.
  Importance weigh(int64_t layer, const std::vector<PassSequence>& pass,
                   const std::vector<Parts>& parts, const Known& before) {
    Importance importance;
    if (setting_.rule.drop == 0) return importance;
    for (size_t i = 0; i < pass.size(); ++i) {
      std::vector<std::pair<int, size_t>> rows;
      for (int rank = 0; rank < comm_.size(); ++rank)
        for (size_t token = 0; token < parts[i].tokens[rank].size(); ++token)
          if (parts[i].tokens[rank][token].is_row) rows.emplace_back(rank, token);
      for (int64_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
        size_t tokens = 0;
        for (const auto& of_rank : parts[i].tokens) tokens += of_rank.size();
        std::vector<double> sums(tokens);
        const Kept kept = kept_of(layer, parts[i], i, kv_head, before);
        for (const int64_t sample : sampled_rows(pass[i].count, TokenImportance::last_samples,
                                                 TokenImportance::other_samples)) {
          const auto [rank, token] = rows[sample];
          const Token& query = parts[i].tokens[rank][token];
          for (int64_t head = kv_head * group(); head < (kv_head + 1) * group(); ++head) {
            double weight = 0;
            for_each_seen(parts[i], rank, token, kept, [&](const Token& key) {
              weight += std::exp(score(layer, head, query, key));
            });
            size_t next = 0;
            for (const auto& of_rank : parts[i].tokens)
              for (const Token& key : of_rank) {
                if (key.position <= query.position)
                  sums[next] += std::exp(score(layer, head, query, key)) / weight;
                ++next;
              }
          }
        }
        importance[{i, kv_head}].assign(sums.begin(), sums.end());
      }
    }
    return importance;
  }

  /// The share of attention of rows that all levels kept, beyond what their rank has and the sinks.
  void learn_need(int64_t layer, const std::vector<Parts>& parts, const Known& before,
                  std::map<std::tuple<size_t, int, size_t>, double>& need) {
    if (!has_borders() || layer + 1 >= layers || rule_at(layer + 1).drop == 0) return;
    for (auto& [row, share] : need) share *= RowNeed::growth;
    for (size_t i = 0; i < parts.size(); ++i) {
      std::vector<Kept> kept;
      for (int64_t kv_head = 0; kv_head < kv_heads; ++kv_head)
        kept.push_back(kept_of(layer, parts[i], i, kv_head, before));
      for (int rank = 0; rank < comm_.size(); ++rank) {
        std::set<std::pair<int64_t, int64_t>> near;  // by sequence and position
        for (const Token& token : parts[i].tokens[rank])
          near.emplace(token.sequence, token.position);
        for (const auto& tokens : parts[i].tokens)
          for (int64_t sink = 0; sink < sinks_of(tokens); ++sink)
            near.emplace(tokens[sink].sequence, tokens[sink].position);
        for (size_t row = 0; row < parts[i].tokens[rank].size(); ++row) {
          const Token& query = parts[i].tokens[rank][row];
          if (!query.is_row || !kept.front().queries.back()[rank][row]) continue;
          double most = 0;
          for (int64_t head = 0; head < heads; ++head) {
            double all = 0, far = 0;
            for_each_seen(parts[i], rank, row, kept[head / group()], [&](const Token& key) {
              const double e = std::exp(score(layer, head, query, key));
              all += e;
              if (!near.contains({key.sequence, key.position})) far += e;
            });
            most = std::max(most, far / all);
          }
          need[{i, rank, row}] = most;
        }
      }
    }
  }

  int64_t group() const { return heads / kv_heads; }

  comm::Communicator& comm_;
  Share share_;
  int64_t heads, kv_heads;  ///< of all ranks
  parallel::HeadShard own_;
  parallel::PartsHere here_;
  parallel::SparseSetting setting_;
  parallel::Levels levels_;
  int64_t passes_ = 0, dropped_ = 0;
  int64_t sent_early_ = 0, sent_late_ = 0;  ///< before layers run, which were begun or not
  double seen_ = 0;                         ///< pairs of this rank's rows in a pass, over layers
  double least_gap_ = 1;  ///< where it is a few units of fp32's last place, the choice is open
  DType dtype_;
  test::CpuCompute compute_;
  KvCache cache_;
  ReplicaGroups groups_;
  Attention attention_;
  std::vector<std::vector<float>> vectors_{4 * layers * 5 * 1000};  ///< made when they are needed
};

/// Two racks, servers of `per_server` ranks.
std::vector<comm::RackServerGpu> places(int ranks, int per_server) {
  std::vector<comm::RackServerGpu> found;
  for (int rank = 0; rank < ranks; ++rank) {
    const int server = rank / per_server;
    found.push_back({2 * rank < ranks ? "a" : "b", std::to_string(server), rank % per_server});
  }
  return found;
}

constexpr int32_t contiguous = PassSequence::contiguous, balanced = PassSequence::balanced;

/// Whether layers, or KV heads too, drop shares of their own in place of the setting's.
enum class Own { none, by_layer, by_head };

struct Setting {
  Geometry geometry;
  double drop;
  std::optional<int> levels;
  parallel::Micros micros;
  DType dtype = DType::fp32;
  std::optional<int64_t> first_tokens = {};
  parallel::Selection selection = parallel::Selection::importance;
  Own own = Own::none;
};

/// The first and the last of the layers drop nothing.
parallel::LayerDrops shares_of(Own own, int64_t kv_heads) {
  switch (own) {
    case Own::none:
      return {};
    case Own::by_layer:
      return {{0}, {0}, {0.6}, {0}};  // layer 1 drops nothing, and says what layer 2 keeps
    case Own::by_head:
      break;
  }
  std::vector<double> heads{0.7, 0, 0.5};
  heads.resize(static_cast<size_t>(kv_heads));
  return {{0}, heads, {0.3}, {0}};
}

const std::vector<Setting> all_settings = {
    Setting{Geometry::disjoint, 0, {}, {1}},
    Setting{Geometry::disjoint, 0, 2, {3}},
    Setting{Geometry::disjoint, 0, 1, {1}},
    Setting{Geometry::disjoint, 0.4, {}, {1}},
    Setting{Geometry::disjoint, 0.9, 3, {2}},
    Setting{Geometry::nested, 0.5, {}, {1}},
    Setting{Geometry::nested, 0, 2, {2}},
    Setting{Geometry::disjoint, 0, {}, {2}, DType::bf16},
    Setting{Geometry::disjoint, 0.5, {}, {1}, DType::fp8},
    Setting{Geometry::nested, 0.55, 3, {2}, DType::fp8},
    Setting{Geometry::disjoint, 0, 1, {1}, DType::fp32, 200},  // all of a part
    Setting{Geometry::disjoint, 0.5, 1, {1}, DType::bf16, 5},
    Setting{Geometry::disjoint, 0.6, {}, {1}, DType::fp32, 50},
    Setting{Geometry::disjoint, 0.6, {}, {1}, DType::fp32, 0},
    Setting{Geometry::disjoint, 0.4, {}, {1}, DType::fp32, {}, parallel::Selection::random},
    Setting{Geometry::nested, 0.4, {}, {1}, DType::fp32, {}, parallel::Selection::random},
    Setting{Geometry::disjoint,
            0,
            {},
            {1},
            DType::fp32,
            {},
            parallel::Selection::importance,
            Own::by_layer},
    Setting{Geometry::nested,
            0,
            {},
            {1},
            DType::fp32,
            {},
            parallel::Selection::importance,
            Own::by_layer},
    Setting{Geometry::disjoint,
            0,
            3,
            {3, 1},
            DType::bf16,
            {},
            parallel::Selection::importance,
            Own::by_head},
    Setting{Geometry::disjoint,
            0,
            {},
            {2},
            DType::fp8,
            {},
            parallel::Selection::importance,
            Own::by_head}};

/// By the number of a setting.
class LevelAttentionTest : public testing::TestWithParam<size_t> {};

void expect_what_the_definition_says(const Setting& of, Share share) {
  const auto& [geometry, drop, levels, micros, dtype, first_tokens, selection, own] = of;
  const auto comm = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  const int ranks = comm->size();
  parallel::SparseSetting setting{{geometry, drop}, levels, micros, first_tokens, selection};
  setting.layer_drops = shares_of(own, heads_of(share, ranks).kv);
  if (own != Own::none) setting.rule.drop = parallel::mean_drop(setting.layer_drops);
  Levelled levelled(*comm, share, setting, places(ranks, 2), dtype);
  for (const int64_t sequence : {1, 2, 3}) levelled.add(sequence);
  // A long prompt, one of fewer rows than ranks, and then chunks after cached tokens.
  levelled.pass({{1, 0, 297, contiguous}, {2, 0, 1, contiguous}}, AttentionExchange::levels);
  levelled.pass({{3, 0, 41, balanced}, {2, 1, 30, balanced}}, AttentionExchange::pass_kv);
  levelled.pass({{2, 31, 70, contiguous}, {1, 297, 85, contiguous}, {3, 41, 0, contiguous}},
                AttentionExchange::levels);
  levelled.add(4, 1);  // begins with all of sequence 1
  levelled.pass({{4, 382, 175, contiguous}}, AttentionExchange::levels);
  levelled.pass({{4, 557, 1, 0}}, share == Share::tokens ? AttentionExchange::broadcast_q
                                                         : AttentionExchange::pass_kv);
  levelled.pass({{4, 558, 66, contiguous}}, AttentionExchange::levels);
  if (share == Share::tokens && ranks > 1 && levels != 1) {
    EXPECT_GT(comm->all_reduce_sum(static_cast<double>(levelled.sent_early())), 0);
  }
  EXPECT_EQ(levelled.sent_late(), 0);
  const bool drops =
      geometry == Geometry::disjoint && levelled.levels().count() > 1 && setting.rule.drop > 0;
  if (drops && ranks > 1) {
    EXPECT_GT(levelled.dropped_pairs(), 0);
  } else if (setting.rule.drop == 0 && geometry == Geometry::disjoint && levels != 1) {
    EXPECT_EQ(levelled.dropped_pairs(), 0);
  }
}

/// Parts with more rows than their ends, so that levels choose among them.
void expect_the_rows_in_need(Share share) {
  const auto comm = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  const parallel::SparseSetting setting{{Geometry::disjoint, 0.1}, {}, {}};
  Levelled levelled(*comm, share, setting, places(comm->size(), 2), DType::fp32);
  levelled.add(1);
  levelled.pass({{1, 0, 640, contiguous}}, AttentionExchange::levels);
  const double dropped = comm->all_reduce_sum(static_cast<double>(levelled.dropped_pairs()));
  if (comm->size() > 1) {
    EXPECT_GT(dropped, 0);
  }
}

TEST(LongParts, OfSharedTokensKeepTheRowsInNeed) {
  expect_the_rows_in_need(Share::tokens);
}

TEST(LongParts, OfSharedHeadsKeepTheRowsInNeed) {
  expect_the_rows_in_need(Share::heads);
}

/// Each setting meets each number of ranks, with shared tokens or with shared heads by turns, so that
/// it meets both with several numbers; or with both in the full matrix.
void try_setting(size_t number, Share share) {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const bool odd = (number + static_cast<size_t>(ranks / 2)) % 2 == 1;
  if (!test::full_matrix() && odd != (share == Share::heads))
    GTEST_SKIP() << "other numbers of ranks try it";
  expect_what_the_definition_says(all_settings[number], share);
}

TEST_P(LevelAttentionTest, OfSharedTokensGivesWhatTheDefinitionSays) {
  try_setting(GetParam(), Share::tokens);
}

TEST_P(LevelAttentionTest, OfSharedHeadsGivesWhatTheDefinitionSays) {
  try_setting(GetParam(), Share::heads);
}

INSTANTIATE_TEST_SUITE_P(All, LevelAttentionTest, testing::Range(size_t{0}, all_settings.size()));

}  // namespace
}  // namespace pecia::attention
