// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Samples from a vocabulary that is cut over ranks, without whole rows of logits. Each rank
/// shortlists its part (kernels/api/shortlist.hpp), the shortlists travel, and the rank that has
/// all of a row's chooses. The tokens are those that the whole row would give, and the
/// log-probabilities agree within rounding.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "lib/engine/schedule/plan.hpp"
#include "lib/model/attention/compute.hpp"

namespace pecia::execute {

struct ShortlistShape {
  int64_t num_candidates = 1, num_top = 0;

  /// Bytes of one row of one part, as it travels.
  int64_t row_bytes() const;
};

/// The shortlist that a row sampled by `params` needs. Absent where any token may be chosen or all
/// are reported (`num_top` −1), where a shortlist is no smaller than its part of a row of logits,
/// and where the vocabulary is in one part.
std::optional<ShortlistShape> shortlist_shape(const kernels::SamplingParams& params,
                                              int64_t num_top, int64_t vocab, int parts);

/// Shortlists of the rows for one part of the vocabulary.
struct Shortlists {
  Shortlists(const ShortlistShape& shape, int64_t rows);
  /// Reads what bytes() returned.
  Shortlists(const ShortlistShape& shape, std::span<const std::byte> bytes);

  /// The rows one after the other, row_bytes() each.
  std::vector<std::byte> bytes() const;
  int64_t rows() const { return static_cast<int64_t>(log_sums.size()); }

  ShortlistShape shape;
  std::vector<double> log_sums;
  std::vector<kernels::Candidate> candidates;
  std::vector<kernels::TopToken> tops;
};

/// Samples the rows from the shortlists of all parts of the vocabulary. `tile` has room for the
/// rows; `workspace` grows in the device's memory.
void sample(std::span<const Shortlists> parts, std::span<const kernels::SamplingRow> rows,
            const attention::Compute& compute, device::Buffer& workspace, schedule::LogProbs& tile);

/// Log-probabilities of the tokens that the parts were asked for.
void score(std::span<const Shortlists> parts, schedule::LogProbs& tile);

}  // namespace pecia::execute
