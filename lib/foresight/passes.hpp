// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Passes of replicas on a described cluster. Each is recorded and played once, however many grids
/// and numbers of ranks ask for it.

#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "lib/foresight/own_time.hpp"
#include "lib/foresight/replica_passes.hpp"
#include "lib/schedule/team_times.hpp"

namespace pecia::foresight {

/// What every pass has in common. All referred to outlives the passes.
struct PassSetting {
  const job::Job& job;
  const model::ModelConfig& config;
  const machines::Cluster& cluster;
  DType weights = DType::bf16;  ///< type of tensors that are not codes
  DType kv = DType::bf16;
  kernels::BackendTraits traits = {};  ///< of the backend of the ranks
  int threads = 1;                     ///< that play passes, beside each other

  /// A replica with such resources, which outlive it.
  Replica replica(const resources::Resources& resources) const {
    return {job, config, resources, weights, traits};
  }
};

/// A pass of a replica's instances: `sequences` sequences, each with `cached` tokens already.
struct PassShape {
  schedule::PassKind kind = schedule::PassKind::prefill;
  parallel::Degrees degrees;
  parallel::AttentionExchange ring = parallel::AttentionExchange::pass_kv;
  parallel::Sharding sharding = parallel::Sharding::base;
  int64_t sequences = 1;
  int64_t tokens = 1;  ///< new ones of each sequence; 1 where they decode
  int64_t cached = 0;
  /// Above 0: the instances are a team of several that change (passes_of_teams.hpp), with so many
  /// masters.
  int masters = 0;
  /// Long prompts are attended by levels. The number of micro-partitions is given.
  std::optional<parallel::SparseSetting> levels = {};
  std::optional<int64_t> tokens_per_pass = {};  ///< as in execute::TrialPasses

  auto key() const {
    return std::tuple(kind, degrees.cp, degrees.sp, degrees.tp, degrees.ep, ring, sharding,
                      sequences, tokens, cached, masters, levels ? levels->micro.value_or(1) : 0,
                      tokens_per_pass);
  }
};

/// What a pass takes, or many passes together.
struct PassFigures {
  schedule::PassWork work;  ///< of the busiest instance
  double seconds = 0;
  RankTimes times;                                        ///< of the busiest rank
  double compute_s = 0, memory_s = 0;                     ///< of its ops, as in OwnTime
  std::array<double, comm::num_link_levels> waiting_s{};  ///< as in OwnTime
  std::array<double, comm::num_link_levels> sent_bytes{};
  double messages = 0;  ///< sent by who has sent sent_bytes

  /// Adds so many of these passes, but for their work.
  void add(const PassFigures& more, double times);
};

/// Several threads may ask for passes at the same time.
class Passes {
 public:
  explicit Passes(PassSetting setting) : setting_(std::move(setting)) {}

  const PassSetting& setting() const { return setting_; }

  /// The pass as one rank alone would do it (own_time.hpp): the real pass takes no less. It is the last
  /// rank of the first instance, which has a row in every pass. sent_bytes: those of this rank.
  const PassFigures& at_least(const PassShape& shape) { return of_one(shape, Others::idle); }
  /// The pass of the same rank if all ranks did as it does (Others::alike).
  const PassFigures& alike(const PassShape& shape) { return of_one(shape, Others::alike); }
  /// The pass as all ranks do it together. Ops are those of the busiest rank, and sent_bytes those of
  /// all ranks. Waits are divided by level as the first rank's own are.
  const PassFigures& played(const PassShape& shape);
  /// What it costs to play the pass: operations of about a microsecond each, for what its ranks list
  /// and for their messages. It depends on the pass alone; 0 where the pass was played.
  double cost(const PassShape& shape);
  /// The programs of all ranks.
  std::vector<Program> programs(const PassShape& shape) const;
  /// How many passes were played.
  int64_t num_played() const { return played_.size(); }

 private:
  /// Figures by shape, each of which one thread finds and others wait for.
  class Known {
   public:
    template <typename Find>
    const PassFigures& of(const PassShape& shape, const Find& find);
    int64_t size() const;
    bool has(const PassShape& shape) const;

   private:
    struct Entry {
      std::once_flag once;
      PassFigures figures;
    };
    mutable std::mutex mutex_;  ///< of the map, not of what is in it
    std::map<decltype(PassShape{}.key()), Entry> entries_;
  };

  const PassFigures& of_one(const PassShape& shape, Others others);
  PassFigures find_one(const PassShape& shape, Others others) const;
  PassFigures play(const PassShape& shape) const;

  PassSetting setting_;
  Known at_least_, alike_, played_;
};

}  // namespace pecia::foresight
