// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What sampling and shortlists do to whole rows of logits: biases, penalties, and ranks.

#include <vector>

#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/sampling/sampling_kernels.cuh"
#include "kernels/cuda/shared/elementwise.cuh"

namespace pecia::kernels::cuda {

/// Sorted scores and their tokens. They lie in one buffer.
struct Ranked {
  float* sorted;
  int32_t* tokens;
};
inline Ranked rank_rows(const float* scores, int64_t rows, int64_t vocab, Context& context,
                        device::Stream& stream) {
  const TensorView both = context.ranked.tensor(DType::fp32, {2, rows * vocab});
  const Ranked ranked = {both.as<float>(), static_cast<int32_t*>(both.row(1))};
  context.row_sort->run(scores, rows, vocab, ranked.sorted, ranked.tokens, stream);
  return ranked;
}

/// Computes the plain softmax of each row, in the device's memory until the next call. One block for
/// a row would take most of a multiprocessor's time to read it, so it is cut into pieces.
inline RowSoftmax* softmax_of_rows(const float* logits, int64_t rows, int64_t vocab,
                                   Context& context, device::Stream& stream) {
  constexpr int64_t tokens = 4096;
  const int64_t pieces = (vocab + tokens - 1) / tokens;
  const TensorView memory = context.statistics.tensor(
      DType::uint8,
      {rows, static_cast<int64_t>(sizeof(RowSoftmax) + pieces * sizeof(SoftmaxPiece))});
  auto* const softmax = static_cast<RowSoftmax*>(memory.data());
  auto* const of_pieces = reinterpret_cast<SoftmaxPiece*>(softmax + rows);
  launch(stream, {.x = rows, .y = pieces, .threads = sampling_threads(vocab)},
         softmax_pieces_kernel, logits, vocab, tokens, of_pieces);
  launch(stream, {.x = rows, .threads = warp_size}, softmax_kernel, of_pieces,
         static_cast<int>(pieces), softmax);
  return softmax;
}

inline RowSampling on_device(const SamplingRow& row) {
  const SamplingParams& p = row.params;
  return {row.uniform,
          p.greedy() ? 0.0 : p.temperature,
          p.top_p,
          p.min_p,
          p.repetition_penalty,
          p.presence_penalty,
          p.frequency_penalty,
          p.top_k,
          p.penalises() || !row.bias.empty()};
}

/// What the rows ask for, in the staging memory.
struct Wishes {
  bool any_penalised = false, any_drawn = false;
  const RowSampling* rows;
  const RowBias* biases;
  int64_t num_biases;
  const TokenList* lists;  ///< lists of penalised rows
  int64_t num_lists;
  const int32_t* tokens;
};

/// Sends what the rows ask for to the device. The rows have the tokens [first_token, first_token +
/// vocab).
inline Wishes upload(std::span<const SamplingRow> asked, int64_t first_token, int64_t vocab,
                     Staging& staging, device::Stream& stream) {
  Wishes wishes;
  std::vector<RowSampling> rows;
  std::vector<RowBias> biases;
  std::vector<TokenList> lists;
  std::vector<int32_t> tokens;
  for (const SamplingRow& row : asked) {
    const auto index = static_cast<int64_t>(rows.size());
    rows.push_back(on_device(row));
    wishes.any_drawn |= !row.params.greedy();
    for (const auto& [token, bias] : row.bias)
      if (token >= first_token && token < first_token + vocab)
        biases.push_back({index, token - first_token, bias});
    if (!row.params.penalises()) continue;
    wishes.any_penalised = true;
    const auto add = [&](std::span<const int32_t> list, bool is_prompt) {
      const auto first = static_cast<int64_t>(tokens.size());
      for (const int32_t token : list)
        if (token >= first_token && token < first_token + vocab)
          tokens.push_back(static_cast<int32_t>(token - first_token));
      lists.push_back({index, first, static_cast<int64_t>(tokens.size()) - first, is_prompt});
    };
    if (row.params.repetition_penalty != 1) add(row.prompt, true);
    add(row.output, false);
  }
  const std::span<const RowSampling> all_rows = rows;
  const std::span<const RowBias> all_biases = biases;
  const std::span<const TokenList> all_lists = lists;
  const std::span<const int32_t> all_tokens = tokens;
  staging.begin(Staging::bytes_of(all_rows) + Staging::bytes_of(all_biases) +
                    Staging::bytes_of(all_lists) + Staging::bytes_of(all_tokens),
                stream);
  wishes.rows = staging.add(all_rows);
  wishes.biases = staging.add(all_biases);
  wishes.num_biases = static_cast<int64_t>(biases.size());
  wishes.lists = staging.add(all_lists);
  wishes.tokens = staging.add(all_tokens);
  wishes.num_lists = static_cast<int64_t>(lists.size());
  staging.send(stream);
  return wishes;
}

/// Returns the logits with biases and penalties. They are the same logits if no row has any.
inline const float* adjust(const float* logits, const Wishes& wishes, int64_t rows, int64_t vocab,
                           Context& context, device::Stream& stream) {
  if (!wishes.any_penalised && wishes.num_biases == 0) return logits;
  auto* const scores = context.scores.tensor(DType::fp32, {rows, vocab}).as<float>();
  if (wishes.num_biases > 0) {
    constexpr int threads = 256;
    context.device.copy(scores, logits, rows * vocab * int64_t{sizeof(float)}, stream);
    launch(stream, {.x = (wishes.num_biases + threads - 1) / threads, .threads = threads},
           bias_kernel, wishes.biases, wishes.num_biases, vocab, scores);
  }
  if (!wishes.any_penalised) return scores;
  const TensorView counts = context.counts.tensor(DType::int32, {rows, vocab});
  context.device.zero(counts.data(), counts.elements() * 4, stream);
  constexpr int64_t pieces = 8;
  launch(stream, {.x = wishes.num_lists, .y = pieces}, count_kernel, wishes.lists, wishes.tokens,
         vocab, static_cast<uint32_t*>(counts.data()));
  launch(stream, grid_of_rows(rows, vocab), penalise_kernel,
         wishes.num_biases > 0 ? scores : logits, static_cast<const uint32_t*>(counts.data()),
         vocab, wishes.rows, scores);
  return scores;
}

}  // namespace pecia::kernels::cuda
