// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which requests' keys and values a run that has to stop keeps for its next start, and what an
/// earlier start has kept. On the rank that plans for its replica.

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/batch/inputs.hpp"
#include "lib/batch/replica_totals.hpp"
#include "lib/resources/resources.hpp"

namespace pecia::execute {

/// Bytes per second of one rank: assumed until files have been written and read.
struct KvRates {
  static constexpr double assumed = 200e6;
  double write = assumed, read = assumed;
};

/// What keys and values of a model take.
struct KvBytes {
  int64_t layers = 0, kv_heads = 0, head_dim = 0;  ///< of the whole model
  DType dtype = DType::fp32;
  int64_t of_rank = 0;  ///< of a token, on a rank that holds it
  int ring_size = 1;    ///< ranks that a sequence's tokens are shared out to

  /// Of so many tokens of a sequence: each rank's, and everything that is written.
  double each(int64_t tokens) const {
    return static_cast<double>(tokens * of_rank) / static_cast<double>(ring_size);
  }
  int64_t all(int64_t tokens) const;
};

/// Keeping pays where writing and reading the bytes takes less than computing them again.
inline double keeping_s(const KvBytes& bytes, int64_t tokens, const KvRates& rates) {
  return bytes.each(tokens) * (1 / rates.write + 1 / rates.read);
}

/// The shortest prompt that is worth keeping, where a prompt of n tokens takes linear · n +
/// quadratic · n² seconds; absent where none is.
std::optional<int64_t> shortest_worth_keeping(double linear_s, double quadratic_s,
                                              const KvBytes& bytes, const KvRates& rates);

KvBytes kv_bytes(const model::ModelConfig& config, const resources::Resources& resources);

/// Which prompts the run would keep, for its first lines; "" where it has none so long. `flops`: of
/// a replica's ranks per second.
std::string keeping_line(const model::ModelConfig& config, const batch::Inputs& inputs,
                         const resources::Resources& resources, double flops);

class KvSaves {
 public:
  struct Settings {
    std::filesystem::path folder;  ///< has one of its own for each request; made when one is kept
    std::string identity;          ///< of what keys and values depend on beside the tokens
    KvBytes bytes;
    double seconds = 0;  ///< that a drain has for all saves
    std::function<void(const std::string&)> warn;
  };

  /// `results` names the requests and outlives this object.
  KvSaves(Settings settings, const io::ResultsFile& results);

  /// Sets `saved` of a request that is about to run where an earlier start has kept its keys and
  /// values whole. Warns of what cannot be used.
  void find(schedule::Request& request);

  /// While the run drains: a plan that has the next request's keys and values written; absent when
  /// there is no more to keep, or no more time. Each must be executed and committed before the
  /// next.
  std::optional<schedule::Plan> next(const schedule::Scheduler& scheduler, double now,
                                     batch::ReplicaTotals& totals);
  bool draining() const { return end_s_.has_value(); }

  /// `outcomes` of all ranks of a plan that saves or restores.
  void commit(const schedule::Plan& plan, const std::vector<schedule::Outcome>& outcomes,
              batch::ReplicaTotals& totals);

  /// Removes the saves of requests that are done or failed.
  void forget_settled();

 private:
  void make(const schedule::KeepableKv& kept, schedule::Plan& plan);
  void commit_save(const schedule::Plan& plan, const std::vector<schedule::Outcome>& outcomes,
                   batch::ReplicaTotals& totals);
  void commit_restore(const schedule::Plan& plan, const std::vector<schedule::Outcome>& outcomes,
                      batch::ReplicaTotals& totals);
  std::filesystem::path folder_of(int64_t row) const;

  Settings settings_;
  const io::ResultsFile& results_;
  KvRates rates_;
  bool write_is_measured_ = false;
  std::map<int64_t, io::KvSave> saves_;  ///< known to be there, by row
  std::optional<double> end_s_;          ///< of the drain's time, on the run's clock
  std::optional<std::vector<schedule::KeepableKv>> left_;  ///< to be kept, the last one first
  std::optional<io::KvSave> under_way_;
};

/// Removes from the folder what belongs to requests that are done or failed, and what a kill has
/// left; all of it where `fresh`. Before anybody uses it.
void sweep_kv_saves(const std::filesystem::path& folder, const io::ResultsFile& results,
                    bool fresh);

/// Where the run's saves are: OUTPUT/kv, which is a link where the job names a folder for them, in
/// which they then have one of their own. Saves that are already there stay. InputError where the
/// folder cannot be made.
std::filesystem::path make_kv_folder(const std::filesystem::path& output,
                                     const std::filesystem::path& asked);

}  // namespace pecia::execute
