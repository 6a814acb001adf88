// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How important tokens are: the sum of the attention that sampled rows pay to a token, over the
/// query heads of its KV head. The samples are the last rows of each sequence, where a question
/// stands, and some rows between. All ranks get the samples' queries and log-sums, and each sums over
/// the keys that it has. Source: CSPS, "which tokens".

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
  /// over the ring. Returns what it cost.
  WeighCost weigh(int64_t layer, kernels::Window window, const TensorView& q,
                  const Partial& attended);

  bool known() const { return known_; }
  /// [any] fp32 in the device's memory, none NaN or negative: of each sequence [KV head][token], its
  /// tokens here in the order of its runs. Who knows of other ranks' heads may add to them.
  TensorView numbers() const {
    return {static_cast<void*>(numbers_.data()), DType::fp32, {num_numbers_}};
  }
  /// The sequence's first number, and its tokens here.
  int64_t first_number(size_t sequence) const { return samples_[sequence].first_number; }
  int64_t tokens(size_t sequence) const { return samples_[sequence].tokens; }

 private:
  /// The samples of a sequence: this rank's rows, and all ranks' samples, which lie by rank.
  struct Samples {
    std::vector<int64_t> own_rows;
    std::vector<int64_t> positions;
    std::vector<int64_t> begin;  ///< by rank, and the end
    int64_t first = 0;           ///< of its samples, among all sequences' samples
    std::vector<int64_t>
        in_rank;  ///< by rank: the first one among the samples of the rank's sequences
    int64_t first_number = 0, tokens = 0;
  };
  TensorView samples_of(int rank) const;
  int64_t gather_samples(const TensorView& q, const Partial& attended);
  double sum_columns(int64_t layer, kernels::Window window);
  Partial samples(const Samples& of) const;

  Compute compute_;
  KvCache& cache_;
  const AttentionSteps& steps_;
  comm::Communicator* ring_ = nullptr;
  std::vector<Sequence> sequences_;
  std::vector<Samples> samples_;
  std::vector<int64_t> first_of_rank_;  ///< samples of all sequences, and the end
  int64_t num_samples_ = 0, num_numbers_ = 0;
  bool known_ = false;
  AttentionSteps::Buffers gathered_;
  device::Buffer messages_;  ///< by rank: a row for each sample, its query and then its log-sums
  device::Buffer numbers_;
};

}  // namespace pecia::attention
