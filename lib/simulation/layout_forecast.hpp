// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What is foreseen of a batch in one layout: what its ranks hold and whether that fits, when the
/// batch ends, and what limits it. Where it does not fit, the least change with which it would.

#include <optional>
#include <string>

#include "lib/simulation/batch_end.hpp"
#include "lib/simulation/layouts.hpp"

namespace pecia::simulation {

/// What a rank of a layout holds, as the allocator of its phantom counts it.
struct RankMemory {
  int64_t program_bytes = 0;  ///< rank.program_gib of the cluster
  int64_t weight_bytes = 0, kv_bytes = 0;
  int64_t work_bytes = 0;              ///< of the largest passes that the batch can make
  int64_t free_bytes = 0;              ///< negative where it does not fit
  int64_t kv_tokens = 0;               ///< slots, as a run would take them
  int64_t kv_recent_tokens = 0;        ///< Resources::kv_recent_tokens
  int64_t kv_wanted = 0;               ///< slots for all sequences that may run at once
  std::optional<std::string> why_not;  ///< absent: it fits
};

/// As a run decides it: 80 % of what weights and activations leave is for keys and values, or
/// kv.memory, and no more than the longest sequences use that may run at once. The first rank's parts
/// of what is cut are the largest. `resources`: all but threads and kv_tokens.
RankMemory rank_memory(const Scenario& scenario, const resources::Resources& resources,
                       const Batch& batch);

/// Seconds until a rank has touched memory that it never wrote; 0 where the cluster does not say.
double first_touch_s(const cluster_files::RankPeaks& rank, int64_t bytes);

/// Seconds until `bytes` bytes of keys have gone from a rank's cache to the host's memory, or back.
/// CPUs read and write them. A GPU reaches its host at RankPeaks::host_gbs.
double parking_s(const cluster_files::Cluster& cluster, int64_t bytes);

/// Minimum gain over something simpler. A smaller difference is within the error of forecasts.
inline constexpr double least_gain = 0.05;

/// What a layout is the best in.
enum class Aim {
  batch_end,   ///< the batch ends first
  first_token  ///< answers begin first after their arrival, on average
};

/// A layout in which the batch was played.
struct LayoutForecast {
  int ranks = 1;
  job::Job::Parallel parallel;  ///< with nothing left to decide but a ring that is chosen by rule
  resources::Resources resources;  ///< all but threads
  RankMemory memory;
  Fidelity fidelity = Fidelity::replayed;  ///< one_rank: it takes too long to replay its passes
  std::optional<BatchEnd> end;             ///< absent: it does not fit
  std::optional<ReplicaCostModel> times;   ///< present with `end`
  double gpu_hours() const { return ranks * end->end_s / 3600; }
  /// Seconds that the aim is about. Requires that it fits.
  double seconds(Aim aim) const { return aim == Aim::batch_end ? end->end_s : end->mean_ttft_s; }
};

/// What a run in this layout would use, all but threads and kv_tokens.
resources::Resources layout_resources(const Scenario& scenario, const job::Job::Parallel& parallel,
                                      int ranks, Batches& batches);

/// Gives the forecast its memory; whether it fits.
bool fit_memory(LayoutForecast& layout, const Scenario& scenario, const Batch& batch);

/// The end of a batch in this layout, which has its memory and its times.
BatchEnd end_of(const LayoutForecast& layout, const Scenario& scenario, const Batch& batch);

/// Plays the batch in this layout. `batch_tokens`: in place of those of layout_resources. With more
/// than all_played_ranks ranks, passes that take long are not replayed (LayoutForecast::fidelity).
LayoutForecast forecast(PassCosts& costs, Batches& batches, const job::Job::Parallel& parallel,
                        int ranks, std::optional<int64_t> batch_tokens = {});

/// What limits a batch in a layout: "compute", "memory bandwidth", "link server", "link rack", "link
/// system", or "memory": answers are made in small groups, since keys and values of more of them do
/// not fit.
std::string limit_of(const LayoutForecast& layout);

/// Tries changes one by one, those first that change no result: fewer tokens in a pass, degrees that
/// the job gave, more ranks (up to 64 times as many), fp8 keys and values, and these with more ranks.
/// Returns the first with which some layout fits, as "--set kv.dtype=fp8" or "--ranks 32"; absent if
/// there is none.
std::optional<std::string> would_fit(const Scenario& scenario, Batches& batches,
                                     const KeptDegrees& kept, int ranks);

/// Whether the batch fits in some layout of this number of ranks.
bool fits_somewhere(const Scenario& scenario, Batches& batches, const KeptDegrees& kept, int ranks);

}  // namespace pecia::simulation
