// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decides which requests' keys and values a draining run keeps for its next start, and finds those
/// that an earlier start has kept. Lives on the rank that plans for its replica.

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/engine/execute/replica_totals.hpp"
#include "lib/engine/schedule/scheduler.hpp"
#include "lib/model/attention/kv_cache.hpp"
#include "lib/work/batch/inputs.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::execute {

/// Bytes per second of one rank. The defaults hold until files have been written and read.
struct KvRates {
  static constexpr double assumed = 200e6;
  double write = assumed, read = assumed;
};

/// Bytes that the keys and values of a model take.
struct KvBytes {
  int64_t layers = 0, kv_heads = 0, head_dim = 0;  ///< of the whole model, layers that store keys
  DType dtype = DType::fp32;
  int64_t of_rank = 0;  ///< bytes of a token on a rank that holds it
  int ring_size = 1;    ///< ranks that a sequence's tokens are shared out to
  /// The layers with a window, where these have files of their own, and how many tokens they keep; 0
  /// tokens: all.
  int64_t window_layers = 0, recent_tokens = 0;
  int64_t sides = 2;                    ///< keys and values; 1: keys alone, which have the values
  attention::RecentLayers recent = {};  ///< what layers that keep recent tokens keep
  io::KvHeads window_heads = {};        ///< of the layers with a window, where they are others
  io::KvStates states = {};             ///< of a sequence, beside its tokens
  int64_t state_of_rank = 0;            ///< bytes of these on a rank that has some of them
  int64_t state_of_all = 0;             ///< and of all ranks together

  /// Bytes of `tokens` tokens of a sequence: `each` on each rank, `all` everything written.
  double each(int64_t tokens) const {
    return static_cast<double>(state_of_rank) +
           share(tokens) * static_cast<double>(tokens * of_rank) / static_cast<double>(ring_size);
  }
  int64_t all(int64_t tokens) const;
  /// The share of `tokens` tokens in all layers that is kept.
  double share(int64_t tokens) const;

 private:
  int64_t of_others() const;   ///< bytes of a token in layers without files of their own
  int64_t of_windows() const;  ///< and in the others
};

/// Seconds to write and read the keys and values. Keeping pays if computing them again takes
/// longer.
inline double keeping_s(const KvBytes& bytes, int64_t tokens, const KvRates& rates) {
  return bytes.each(tokens) * (1 / rates.write + 1 / rates.read);
}

/// The shortest prompt that is worth keeping; absent where none is. A prompt of n tokens takes
/// linear · n + quadratic · n² seconds.
std::optional<int64_t> shortest_worth_keeping(double linear_s, double quadratic_s,
                                              const KvBytes& bytes, const KvRates& rates);

KvBytes kv_bytes(const model::ModelConfig& config, const resources::Resources& resources);

/// Says, for the first lines, which prompts the run would keep; "" where no prompt is long enough.
/// `flops`: FLOP/s of all ranks of a replica.
std::string keeping_line(const model::ModelConfig& config, const batch::Inputs& inputs,
                         const resources::Resources& resources, double flops);

class KvSaves {
 public:
  struct Settings {
    std::filesystem::path folder;  ///< holds one folder per request, made when one is kept
    std::string identity;          ///< names what keys and values depend on beside the tokens
    KvBytes bytes;
    double seconds = 0;  ///< time of a drain for all saves
    std::function<void(const std::string&)> warn;
    /// FLOPs of the first tokens of a sequence, for ReplicaTotals::restored_flops; null: not counted.
    std::function<double(double tokens)> flops = {};
  };

  /// `results` names the requests and outlives this object.
  KvSaves(Settings settings, const io::ResultsFile& results);

  /// Sets `saved` of a request that is about to run, where an earlier start has kept its keys and
  /// values completely. Warns of saves that cannot be used.
  void find(batch::Request& request);

  /// While the run drains: a plan that writes the next request's keys and values; absent when
  /// nothing is left to keep, or no time. Each plan must be executed and committed before the next
  /// call.
  std::optional<schedule::Plan> next(const schedule::Scheduler& scheduler, double now,
                                     execute::ReplicaTotals& totals);
  bool draining() const { return end_s_.has_value(); }

  /// Takes in the `outcomes` of all ranks for a plan that saves or restores.
  void commit(const schedule::Plan& plan, const std::vector<schedule::Outcome>& outcomes,
              execute::ReplicaTotals& totals);

  /// Removes the saves of requests that the results have as done or failed. Where results come by
  /// way of journals, the file may learn of it later: from a later call, or sweep_kv_saves.
  void forget_settled();

 private:
  void make(const schedule::KeepableKv& kept, schedule::Plan& plan);
  void commit_save(const schedule::Plan& plan, const std::vector<schedule::Outcome>& outcomes,
                   execute::ReplicaTotals& totals);
  void commit_restore(const schedule::Plan& plan, const std::vector<schedule::Outcome>& outcomes,
                      execute::ReplicaTotals& totals);
  std::filesystem::path folder_of(int64_t row) const;

  Settings settings_;
  const io::ResultsFile& results_;
  KvRates rates_;
  bool write_is_measured_ = false;
  std::map<int64_t, io::KvSave> saves_;  ///< saves known to exist, by row
  std::optional<double> end_s_;          ///< end of the drain's time, on the run's clock
  std::optional<std::vector<schedule::KeepableKv>> left_;  ///< to be kept, the last one first
  std::optional<io::KvSave> under_way_;
};

/// Removes from the folder the saves of requests that are done or failed, and remains of killed
/// starts; with `fresh` it removes all saves. What is not named as a save stays. Call it before anything uses the folder.
void sweep_kv_saves(const std::filesystem::path& folder, const io::ResultsFile& results,
                    bool fresh);

/// Makes the folder of the run's saves: OUTPUT/kv. If the job names a folder for them, OUTPUT/kv is
/// a link to a folder of the run's own in that one. Existing saves stay. Throws InputError where
/// the folder cannot be made, or is a link of another user.
std::filesystem::path make_kv_folder(const std::filesystem::path& output,
                                     const std::filesystem::path& asked);

}  // namespace pecia::execute
