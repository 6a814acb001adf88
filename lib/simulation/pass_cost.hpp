// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What passes of replicas cost on a described cluster: as one rank's program tells, or as the replay
/// of all ranks does. Each pass is recorded and replayed once, however many layouts and numbers of
/// ranks ask for it.

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "lib/engine/schedule/team_times.hpp"
#include "lib/simulation/replay.hpp"
#include "lib/simulation/replica_program.hpp"

namespace pecia::simulation {

/// A pass of a replica's instances: `sequences` sequences, each with `cached` tokens already.
struct PassShape {
  schedule::PassKind kind = schedule::PassKind::prefill;
  parallel::Degrees degrees;  ///< of a stage
  int stages = 1;             ///< through which the pass goes, one after the other
  parallel::AttentionExchange ring = parallel::AttentionExchange::pass_kv;
  parallel::Sharding sharding = parallel::Sharding::base;
  int64_t sequences = 1;
  int64_t tokens = 1;  ///< new ones of each sequence; 1 where they decode
  int64_t cached = 0;
  /// Above 0: the instances are a team of several that change (prefill_of_team), with this
  /// number of masters.
  int masters = 0;
  /// Long prompts are attended by levels. The number of micro-partitions is given.
  std::optional<parallel::SparseSetting> levels = {};
  std::optional<int64_t> tokens_per_pass = {};  ///< as in execute::TrialPasses

  int64_t ranks() const { return stages * degrees.ranks(); }
  auto key() const {
    return std::tuple(kind, stages, degrees.cp, degrees.sp, degrees.tp, degrees.ep, ring, sharding,
                      sequences, tokens, cached, masters,
                      levels ? levels->micros.value_or(parallel::Micros{1}) : parallel::Micros{},
                      tokens_per_pass);
  }
};

/// What a pass takes, or many passes together.
struct PassCost {
  schedule::PassWork work;  ///< of the busiest instance
  double seconds = 0;
  RankTimes times;  ///< of the busiest rank
  /// The ops and copies that last as long as their FLOPs, and those that last as long as their bytes.
  double compute_s = 0, memory_s = 0;
  std::array<double, comm::num_link_levels> waiting_s{};  ///< by the level that was waited for
  std::array<double, comm::num_link_levels> sent_bytes{};
  double messages = 0;  ///< sent by who has sent sent_bytes

  /// Adds `more`, this number of times, but not its work.
  void add(const PassCost& more, double times);
};

/// What a rank's program takes if nobody keeps it waiting: its peers are ready at once, and no other
/// message is on the links. A pass never takes less (replay.hpp), and this needs one rank's program
/// instead of all. Waits are those of the rank's own messages. It has no work. `rank`: the program's;
/// ranks fill the cluster's servers in their order.
PassCost rank_lower_bound(const Program& program, int rank, const cluster_files::Cluster& cluster);

/// The same if all other ranks do what this one does: those of its server compute and move memory
/// with it, and those that share a link have equal parts of its rate. It takes about as long as the
/// pass of all ranks, or longer where fewer of them send at once.
PassCost rank_estimate(const Program& program, int rank, const cluster_files::Cluster& cluster);

/// Several threads may ask for costs at the same time.
class PassCosts {
 public:
  explicit PassCosts(Scenario scenario) : scenario_(std::move(scenario)) {}

  const Scenario& scenario() const { return scenario_; }

  /// The pass as one rank alone would do it (rank_lower_bound). It is the last rank of the first
  /// instance, which has a row in every pass. sent_bytes: those of this rank.
  const PassCost& lower_bound(const PassShape& shape);
  /// The pass of the same rank if all ranks did as it does (rank_estimate).
  const PassCost& estimate(const PassShape& shape);
  /// The pass as all ranks do it together. Ops are those of the busiest rank, and sent_bytes those of
  /// all ranks. Waits are divided by level as the first rank's own are.
  const PassCost& replayed(const PassShape& shape);
  /// Effort of replaying the pass: operations of about a microsecond each, for what its ranks
  /// list and for their messages. It depends on the pass alone; 0 where the pass was replayed.
  double replay_effort(const PassShape& shape);
  /// The programs of all ranks.
  std::vector<Program> programs(const PassShape& shape) const;
  /// How many passes were replayed.
  int64_t num_replayed() const { return replayed_.size(); }

 private:
  /// Costs by shape, each of which one thread finds and others wait for.
  class Known {
   public:
    template <typename Find>
    const PassCost& of(const PassShape& shape, const Find& find);
    int64_t size() const;
    bool has(const PassShape& shape) const;

   private:
    struct Entry {
      std::once_flag once;
      PassCost cost;
    };
    mutable std::mutex mutex_;  ///< of the map, not of what is in it
    std::map<decltype(PassShape{}.key()), Entry> entries_;
  };

  using OfRank = PassCost (&)(const Program&, int, const cluster_files::Cluster&);
  PassCost find_of_rank(const PassShape& shape, OfRank of_rank) const;
  PassCost replay_all(const PassShape& shape) const;

  Scenario scenario_;
  Known lower_bounds_, estimates_, replayed_;
};

}  // namespace pecia::simulation
