// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Options of the benchmarks that run a model.

#include "apps/bench_support/replica.hpp"
#include "apps/bench_support/results.hpp"

namespace CLI {
class App;
}

namespace pecia::bench {

struct ModelOptions {
  std::filesystem::path model;
  std::string compute = "auto";
  std::string dtype = "auto";     ///< type of the layers' matrices; auto: as stored
  std::string kv_dtype = "auto";  ///< auto: the type of the stored weights
  int sp = 1, tp = 1, ep = 1;
  std::string sharding = "base";
  int64_t batch_tokens = 0;  ///< 0: as a run chooses
  uint64_t seed = 1;
  std::string reproducible = "run";
  std::string prepack = "auto";
  bool stages = false;
  std::string backend = "cpu";
  bool allow_gpu_sharing = false;

  /// The type with which the floor of products is measured.
  DType product_type() const { return dtype == "fp8" ? DType::fp8 : DType::bf16; }
  /// A job with these settings for the backend and the types.
  job::Job job() const;
};

void add_model_options(CLI::App& app, ModelOptions& options);

/// The settings for replicas of `model` on `ranks` ranks; kv_tokens is not set.
ReplicaSettings replica_settings(const ModelOptions& options, const LoadedModel& model, int threads,
                                 int ranks);

/// Throws InputError for settings with which --check cannot tell right from wrong.
void refuse_check_of_codes(const ModelOptions& options);

/// "CP 2 × SP 2 × TP 1, base": how the options lay out `ranks` ranks.
std::string grid(const ModelOptions& options, int ranks);

/// The difference that --check allows between log-probabilities computed on different layouts. Sums
/// in another order differ by about 1e-5 in fp32. Where a key or value is rounded to a narrower
/// type, such a difference may become one unit in its last place. With rows rounded for each
/// product (`operands`), one of 49152 tokens was off by up to 0.14 after 30 layers.
double logprob_tolerance(DType kv_dtype, DType operands);

/// Seconds by kind since an earlier time, as a share of all ranks' wall time. Sums over the ranks.
/// Collective.
struct Shares {
  double exposed_comm = 0, idle = 0;
};
Shares shares_since(comm::Communicator& world, const report::Totals& before,
                    const report::Totals& now, double seconds);

/// Bytes that all ranks together have sent, and bytes that phantoms of these ranks have sent.
struct Sent {
  double total = 0, expected_in_layers = 0, expected_outside = 0;

  /// Sent bytes without those that a phantom sends for embedding and logits.
  double in_layers() const { return total - expected_outside; }
  Sent operator-(const Sent& before) const;
  /// "" when the ranks have sent as many bytes as their phantoms, and where rows travel to their
  /// experts: those of phantoms choose at random.
  std::string problem(const ReplicaSettings& settings) const;
};
/// Sums over all ranks. Collective.
Sent sent_by_all(comm::Communicator& world, Replica& replica);

/// Rank 0's seconds by span name between two states of its recorder, the most first.
std::vector<std::pair<std::string, double>> stage_seconds(const std::vector<report::Stage>& before,
                                                          const std::vector<report::Stage>& now);

/// Prints the stages under a table's row.
void print_stages(const Results& results,
                  const std::vector<std::pair<std::string, double>>& stages);

}  // namespace pecia::bench
