// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which datasets a results file of a given layout has, in the order of the file.

#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/io/hdf5.hpp"
#include "lib/io/results.hpp"

namespace pecia::io {

inline constexpr const char* results_schema = "pecia.results/1";
inline constexpr int64_t mode_bytes = 64;
inline constexpr int64_t error_bytes = 256;

enum class ResultsType { uint8, int32, int64, float32, finish_reason, text };

struct ResultsDataset {
  const char* name;  ///< "/tokens"
  ResultsType type;
  std::vector<int64_t> extents;
  int64_t element_bytes;
  bool may_lack = false;  ///< files of earlier versions have no such dataset

  int64_t bytes() const;  ///< InputError beyond 2^63
};

/// InvalidArgument when the layout contradicts itself (negative sizes, ids that are no text).
std::vector<ResultsDataset> results_datasets(const ResultsLayout& layout);

/// The HDF5 type in the file; little-endian, like every machine this program runs on.
Hdf5Type hdf5_type(const ResultsDataset& dataset);

/// Where the slots of turn t begin, and the end of all: T + 1 entries. InputError beyond 2^63.
std::vector<int64_t> slot_offsets(const ResultsLayout& layout);
std::vector<int64_t> prompt_slot_offsets(const ResultsLayout& layout);

/// Values per slot of /top_tokens (0: no such dataset) and of /top_logprobs, for K as in
/// ResultsLayout.
int64_t top_tokens_width(int k);
int64_t top_logprobs_width(int k, int64_t vocab);

}  // namespace pecia::io
