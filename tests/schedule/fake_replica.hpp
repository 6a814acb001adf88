// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A replica whose model is a function of the tokens that it was shown. It drives a Scheduler as
/// the loop of a replica does, checks every plan as the ranks would, and knows what each turn must
/// give.

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "lib/engine/schedule/scheduler.hpp"

namespace pecia::test {

constexpr int32_t stop_token = 2;

/// Returns a token that depends on every token, their order and the key. It is the stop token now
/// and then.
int32_t next_token(std::span<const int32_t> history, uint64_t random_key);
/// Returns the log-probability of `token` after `history`.
float log_prob(std::span<const int32_t> history, int32_t token);

/// Adds the log-probability of `token` after `history`, with `wanted` others.
void append(schedule::LogProbs& found, size_t which, std::span<const int32_t> history,
            int32_t token, int wanted, int64_t vocab);

/// Tokens from 5 on have texts of 1 to 4 of the letters a, b, x and é. Tokens below 5 are special.
std::shared_ptr<const io::Detokenizer> fake_detokenizer();

/// The folder of a save that no rank can read.
constexpr const char* damaged_save = "damaged";

/// All ranks of a replica. A plan that no Worker could run throws InvalidArgument. Such a plan
/// has positions with gaps, a rank that holds more than is reserved, more reserved than there is,
/// or a child without its parent.
class FakeReplica {
 public:
  explicit FakeReplica(const schedule::SchedulerLimits& limits);

  /// Runs a plan. Returns one outcome for each rank.
  std::vector<schedule::Outcome> execute(const schedule::Plan& plan);

 private:
  /// The state of recurrent layers: how many tokens it has taken in, and the instance that has it.
  struct State {
    int64_t length = 0;
    int32_t holder = 0;
    bool operator==(const State&) const = default;
  };
  void begin(const schedule::Plan& plan);
  void go_back(int64_t sequence, int64_t length);
  void cache(const schedule::PlanItem& item, const parallel::Team& team);

  schedule::SchedulerLimits limits_;
  parallel::KvMap map_;
  std::map<int64_t, std::vector<int32_t>> tokens_;  ///< by sequence
  std::map<int64_t, schedule::TurnStart> turns_;
  /// By sequence with tokens of its own; and what is kept of a sequence while it may be shortened.
  std::map<int64_t, State> states_, kept_;
  std::map<int64_t, int64_t> longest_;  ///< by sequence
};

struct Served {
  std::map<int64_t, batch::Finished> rows;
  /// By row, on the clock that began at 0 with the requests.
  std::map<int64_t, double> finished_at;
  std::vector<batch::Finished> partial;  ///< partial results when it was stopped
  std::vector<schedule::KeepableKv> keepable;
  std::vector<schedule::Plan> plans;
  batch::Sharing sharing;
  std::vector<std::vector<schedule::ChunkRing>> chunk_rings;  ///< by plan
  int64_t most_under_way = 0;                                 ///< plans at a time
  int64_t waits = 0;  ///< how often no plan could be made before one ended
};

/// Runs the requests to their end, or for `max_passes` passes. Throws if a plan is wrong, if a row
/// is recorded twice, or if it does not come to an end. `arrivals` has the pass before which each
/// request comes. If it is empty, all come before the first pass.
Served serve(const schedule::SchedulerLimits& limits, std::vector<batch::Request> requests,
             int64_t max_passes = std::numeric_limits<int64_t>::max(),
             std::vector<int64_t> arrivals = {});

/// Returns what the model gives for the requests, one token at a time and without a cache. The
/// result has states, tokens and log-probabilities by row.
std::map<int64_t, batch::Finished> expected(const schedule::SchedulerLimits& limits,
                                            const std::vector<batch::Request>& requests);

/// Returns the requests as a later run finds them after `served`.
std::vector<batch::Request> resumed(std::vector<batch::Request> requests, const Served& served);

/// Expects that everything in `rows` is in `wanted`, and the other way round. Tokens and
/// log-probabilities must be exactly the same.
void expect_same(const std::map<int64_t, batch::Finished>& rows,
                 const std::map<int64_t, batch::Finished>& wanted);

}  // namespace pecia::test
