// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "kernels/cuda/attention/sdpa.hpp"

namespace pecia::test {

/// What a PlainSdpa has been asked; outlives it.
struct SdpaCalls {
  std::vector<kernels::cuda::SdpaShape> run;
  int64_t most_keys = -1;    ///< shapes with more are refused; −1: none is
  int64_t most_starts = -1;  ///< runs after so many do not start; −1: all do
};

/// Attention as the contract of Sdpa says it, in plain loops. Throws InvalidArgument for a shape
/// that cuDNN would not take: nothing to see for some row, misaligned or of a type that it does not
/// have.
std::unique_ptr<kernels::cuda::Sdpa> make_plain_sdpa(SdpaCalls& calls);

}  // namespace pecia::test
