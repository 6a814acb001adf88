// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The datasets of a results file with a given layout, in the order of the file.

#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/files/hdf5/hdf5.hpp"
#include "lib/files/results/results.hpp"

namespace pecia::io {

inline constexpr const char* results_schema = "pecia.results/1";
inline constexpr int64_t mode_bytes = 64;
inline constexpr int64_t error_bytes = 256;

enum class ResultsType { uint8, int32, int64, float16, float32, float64, finish_reason, text };

struct ResultsDataset {
  const char* name;  ///< "/tokens"
  ResultsType type;
  std::vector<int64_t> extents;
  int64_t element_bytes;
  bool may_lack = false;  ///< files of earlier versions lack this dataset

  int64_t bytes() const;  ///< throws InputError beyond 2^63
};

/// Throws InvalidArgument when the layout is inconsistent (negative sizes, ids that are not text).
std::vector<ResultsDataset> results_datasets(const ResultsLayout& layout);

/// The HDF5 type in the file. It is little-endian, like every machine this program runs on.
Hdf5Type hdf5_type(const ResultsDataset& dataset);

/// The first slot of each turn, and the end of the last one: T + 1 entries. Throws InputError
/// beyond 2^63.
std::vector<int64_t> slot_offsets(const ResultsLayout& layout);
std::vector<int64_t> prompt_slot_offsets(const ResultsLayout& layout);
/// Likewise of vectors, scores, and the tokens whose log-probabilities scores weigh.
std::vector<int64_t> vector_offsets(const ResultsLayout& layout);
std::vector<int64_t> score_offsets(const ResultsLayout& layout);
std::vector<int64_t> score_token_offsets(const ResultsLayout& layout);

/// Values per slot of /top_tokens (0: no such dataset) and of /top_logprobs. K is as in
/// ResultsLayout.
int64_t top_tokens_width(int k);
int64_t top_logprobs_width(int k, int64_t vocab);

}  // namespace pecia::io
