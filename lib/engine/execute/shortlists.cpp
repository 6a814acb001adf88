// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/shortlists.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "lib/base/core/error.hpp"

namespace pecia::execute {
namespace {

using kernels::Candidate;
using kernels::no_token;
using kernels::SamplingParams;
using kernels::SamplingRow;
using kernels::TopToken;

/// log Σ exp over all parts; not finite where the row has no distribution.
double normaliser(std::span<const Shortlists> parts, int64_t row) {
  double maximum = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const Shortlists& part : parts) {
    if (std::isnan(part.log_sums[row])) return NAN;
    maximum = std::max(maximum, part.log_sums[row]);
  }
  if (!std::isfinite(maximum)) return NAN;
  for (const Shortlists& part : parts) sum += std::exp(part.log_sums[row] - maximum);
  return maximum + std::log(sum);
}

/// The candidates of all parts, by token id.
std::vector<Candidate> candidates_of(std::span<const Shortlists> parts, int64_t row) {
  std::vector<Candidate> all;
  for (const Shortlists& part : parts) {
    const auto begin = part.candidates.begin() + row * part.shape.num_candidates;
    std::copy_if(begin, begin + part.shape.num_candidates, std::back_inserter(all),
                 [](const Candidate& each) { return each.token != no_token; });
  }
  std::sort(all.begin(), all.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  return all;
}

void write_tops(std::span<const Shortlists> parts, int64_t row, double log_sum,
                schedule::LogProbs& tile) {
  const int64_t num_top = parts.front().shape.num_top;
  if (num_top == 0) return;
  const auto tokens = tile.top_tokens.begin() + row * num_top;
  const auto logprobs = tile.top_logprobs.begin() + row * num_top;
  if (!std::isfinite(log_sum)) {
    std::fill_n(tokens, num_top, no_token);
    std::fill_n(logprobs, num_top, NAN);
    return;
  }
  std::vector<TopToken> all;
  for (const Shortlists& part : parts) {
    const auto begin = part.tops.begin() + row * num_top;
    all.insert(all.end(), begin, begin + num_top);
  }
  std::partial_sort(all.begin(), all.begin() + num_top, all.end(),
                    [](const TopToken& a, const TopToken& b) {
                      return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
                    });
  for (int64_t i = 0; i < num_top; ++i) {
    tokens[i] = all[i].token;
    logprobs[i] = static_cast<float>(all[i].logit - log_sum);
  }
}

}  // namespace

int64_t ShortlistShape::row_bytes() const {
  return static_cast<int64_t>(sizeof(double)) +
         num_candidates * static_cast<int64_t>(sizeof(Candidate)) +
         num_top * static_cast<int64_t>(sizeof(TopToken));
}

std::optional<ShortlistShape> shortlist_shape(const SamplingParams& params, int64_t num_top,
                                              int64_t vocab, int parts) {
  if (parts == 1 || num_top < 0 || (!params.greedy() && params.top_k == 0)) return {};
  const ShortlistShape shape{params.greedy() ? 1 : params.top_k, num_top};
  const int64_t part_bytes = vocab / parts * static_cast<int64_t>(sizeof(float));
  if (shape.row_bytes() >= part_bytes) return {};
  return shape;
}

Shortlists::Shortlists(const ShortlistShape& of, int64_t rows)
    : shape(of), log_sums(rows), candidates(rows * of.num_candidates), tops(rows * of.num_top) {}

Shortlists::Shortlists(const ShortlistShape& of, std::span<const std::byte> bytes)
    : Shortlists(of, static_cast<int64_t>(bytes.size()) / of.row_bytes()) {
  PECIA_CHECK(rows() * of.row_bytes() == static_cast<int64_t>(bytes.size()),
              "{} bytes for rows of {}", bytes.size(), of.row_bytes());
  const std::byte* from = bytes.data();
  const auto take = [&](auto* values, int64_t count) {
    const size_t size = count * sizeof(*values);
    std::memcpy(values, from, size);
    from += size;
  };
  for (int64_t row = 0; row < rows(); ++row) {
    take(log_sums.data() + row, 1);
    take(candidates.data() + row * shape.num_candidates, shape.num_candidates);
    take(tops.data() + row * shape.num_top, shape.num_top);
  }
}

std::vector<std::byte> Shortlists::bytes() const {
  std::vector<std::byte> bytes(rows() * shape.row_bytes());
  std::byte* to = bytes.data();
  const auto put = [&](const auto* values, int64_t count) {
    const size_t size = count * sizeof(*values);
    std::memcpy(to, values, size);
    to += size;
  };
  for (int64_t row = 0; row < rows(); ++row) {
    put(log_sums.data() + row, 1);
    put(candidates.data() + row * shape.num_candidates, shape.num_candidates);
    put(tops.data() + row * shape.num_top, shape.num_top);
  }
  return bytes;
}

/// Samples with the op for whole rows, from rows that hold only the candidates' scores. These are
/// in the order of token ids, so that ties are resolved as among all tokens. Biases and penalties
/// are in the scores already.
void sample(std::span<const Shortlists> parts, std::span<const SamplingRow> rows,
            const attention::Compute& compute, device::Buffer& workspace,
            schedule::LogProbs& tile) {
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t width = parts.front().shape.num_candidates * static_cast<int64_t>(parts.size());
  std::vector<float> scores(count * width);  // 0 where a row has no distribution
  std::vector<SamplingRow> plain;
  std::vector<std::vector<Candidate>> candidates;
  std::vector<double> log_sums;
  for (int64_t r = 0; r < count; ++r) {
    log_sums.push_back(normaliser(parts, r));
    write_tops(parts, r, log_sums.back(), tile);
    SamplingRow& row = plain.emplace_back(SamplingRow{rows[r].params, rows[r].uniform, {}, {}});
    row.params.repetition_penalty = 1;
    row.params.presence_penalty = row.params.frequency_penalty = 0;
    candidates.push_back(candidates_of(parts, r));
    if (!std::isfinite(log_sums.back())) continue;
    for (int64_t i = 0; i < width; ++i) scores[r * width + i] = candidates.back().at(i).score;
  }
  std::vector<int32_t> chosen(count);
  std::vector<float> unused(count);
  const TensorView logits = workspace.tensor(DType::fp32, {count, width});
  compute.copy({scores.data(), DType::fp32, {count, width}}, logits);
  compute.backend.sample({.logits = logits,
                          .rows = plain,
                          .num_top = 0,
                          .tokens = chosen,
                          .token_logprobs = unused,
                          .top_tokens = {},
                          .top_logprobs = {}},
                         compute.stream);
  for (int64_t r = 0; r < count; ++r) {
    const bool exists = std::isfinite(log_sums[r]) && chosen[r] != no_token;
    tile.tokens[r] = exists ? candidates[r][chosen[r]].token : no_token;
    tile.logprobs[r] =
        exists ? static_cast<float>(candidates[r][chosen[r]].logit - log_sums[r]) : NAN;
  }
}

void score(std::span<const Shortlists> parts, schedule::LogProbs& tile) {
  for (int64_t r = 0; r < parts.front().rows(); ++r) {
    const double log_sum = normaliser(parts, r);
    write_tops(parts, r, log_sum, tile);
    tile.logprobs[r] = NAN;
    if (std::isfinite(log_sum))
      tile.logprobs[r] = static_cast<float>(candidates_of(parts, r).at(0).logit - log_sum);
  }
}

}  // namespace pecia::execute
