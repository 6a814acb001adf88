// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How important tokens are: the sum of the attention that sampled rows pay to a token, over the
/// query heads of its KV head. The samples are the last rows of each sequence, where a question
/// stands, and some rows between. All ranks get the samples' queries and log-sums, and each sums over
/// the keys that it has. Source: CSPS, "which tokens".

#include <span>
#include <vector>

#include "lib/model/attention/attention_steps.hpp"
#include "lib/model/attention/sparse_totals.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::attention {

/// Returns which of `rows` rows are samples: the last ones, and others at equal distances.
///
///     10 rows, 2 last, 3 others     2 4 6 8 9
std::vector<int64_t> sampled_rows(int64_t rows, int64_t last, int64_t others);

class TokenImportance {
 public:
  static constexpr int64_t last_samples = 64, other_samples = 32;

  /// A sequence of the pass.
  struct Sequence {
    std::vector<std::vector<int64_t>> positions;  ///< of its rows, by rank
    std::vector<kernels::KeyRun> runs;            ///< keys of its tokens here, in the cache
    int64_t first_row = 0;                        ///< its first row here, of q
  };

  /// All references must outlive this object.
  TokenImportance(const Compute& compute, KvCache& cache, const AttentionSteps& steps);

  /// Begins a pass of the ranks of `ring`. Nothing is known then.
  void begin_pass(comm::Communicator& ring, std::vector<Sequence> sequences);

  /// Weighs the tokens by a layer, after its attention. q is [rows, num_heads, head_dim]. Collective
  /// over the ring. The host waits for the sums. Returns what it cost.
  WeighCost weigh(int64_t layer, int64_t window, const TensorView& q, const Partial& attended);

  bool known() const { return known_; }
  /// [KV head][token], to which who knows of other ranks' heads may add.
  std::span<float> of_sequence(size_t sequence) { return importance_[sequence]; }
  /// Of the sequence's tokens here, in the order of its runs. No number is NaN or negative.
  std::span<const float> of(size_t sequence, int64_t kv_head) const {
    const std::vector<float>& all = importance_[sequence];
    const int64_t tokens = std::ssize(all) / cache_.shape().num_kv_heads;
    return std::span(all).subspan(kv_head * tokens, tokens);
  }

 private:
  /// The samples of a sequence: this rank's rows, and all ranks' samples, which lie by rank.
  struct Samples {
    std::vector<int64_t> own_rows;
    std::vector<int64_t> positions;
    std::vector<int64_t> begin;  ///< by rank, and the end
  };
  int64_t gather_samples(const TensorView& q, const Partial& attended);
  double sum_columns(int64_t layer, int64_t window);
  Partial samples(const Samples& of, int64_t first) const;

  Compute compute_;
  KvCache& cache_;
  const AttentionSteps& steps_;
  comm::Communicator* ring_ = nullptr;
  std::vector<Sequence> sequences_;
  std::vector<Samples> samples_;
  int64_t num_samples_ = 0;
  bool known_ = false;
  std::vector<std::vector<float>> importance_;  ///< by sequence: [KV head][token]
  AttentionSteps::Buffers gathered_;
  device::Buffer sums_, read_sums_;
};

}  // namespace pecia::attention
