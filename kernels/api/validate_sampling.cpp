// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/api/checks.hpp"
#include "kernels/api/validate.hpp"

namespace pecia::kernels {
namespace {

void check_vocabulary(std::string_view name, std::span<const int32_t> tokens, int64_t row,
                      int64_t vocab) {
  for (size_t i = 0; i < tokens.size(); ++i)
    PECIA_CHECK(tokens[i] >= 0 && tokens[i] < vocab, "rows[{}].{}[{}] is {}, outside [0, {})", row,
                name, i, tokens[i], vocab);
}

void check_tops(int64_t num_top, int64_t rows, int64_t vocab, size_t top_tokens,
                size_t top_logprobs) {
  PECIA_CHECK(num_top >= -1 && num_top <= vocab, "num_top is {}, outside [-1, {}]", num_top, vocab);
  check_size("top_tokens", top_tokens, num_top > 0 ? rows * num_top : 0);
  check_size("top_logprobs", top_logprobs, rows * (num_top < 0 ? vocab : num_top));
}

int64_t check_logits(const TensorView& logits) {
  check_rank("logits", logits, 2);
  check_fp32("logits", logits);
  check_dense("logits", logits);
  PECIA_CHECK(logits.rows() == 0 || logits.size(1) > 0, "logits of an empty vocabulary");
  return logits.size(1);
}

void check_params(const SamplingParams& p, int64_t row) {
  PECIA_CHECK(p.temperature >= 0 && std::isfinite(p.temperature), "rows[{}].temperature is {}", row,
              p.temperature);
  PECIA_CHECK(p.top_k >= 0, "rows[{}].top_k is {}", row, p.top_k);
  PECIA_CHECK(p.top_p > 0 && p.top_p <= 1, "rows[{}].top_p is {}, outside (0, 1]", row, p.top_p);
  PECIA_CHECK(p.min_p >= 0 && p.min_p <= 1, "rows[{}].min_p is {}, outside [0, 1]", row, p.min_p);
  PECIA_CHECK(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty),
              "rows[{}].repetition_penalty is {}", row, p.repetition_penalty);
  PECIA_CHECK(std::isfinite(p.presence_penalty) && std::isfinite(p.frequency_penalty),
              "rows[{}] has penalties {} and {}", row, p.presence_penalty, p.frequency_penalty);
}

void check_bias(std::span<const LogitBias> bias, int64_t row) {
  for (const auto& [token, value] : bias)
    PECIA_CHECK(token >= 0 && std::isfinite(value), "rows[{}] has the bias {} of token {}", row,
                value, token);
}

}  // namespace

void validate(const MaskTokensArgs& args) {
  check_rank("logits", args.logits, 2);
  check_fp32("logits", args.logits);
  const int64_t end = args.first_token + args.logits.size(1), rows = args.logits.rows();
  PECIA_CHECK(args.first_token >= 0, "first_token {}", args.first_token);
  const auto words = static_cast<int64_t>(args.words.size());
  PECIA_CHECK(rows == 0 ? words == 0 : words % rows == 0 && words / rows * 32 >= end,
              "{} words for {} rows of tokens up to {}", words, rows, end);
}

void validate(const SamplingArgs& args) {
  const int64_t vocab = check_logits(args.logits), rows = args.logits.rows();
  check_size("rows", args.rows.size(), rows);
  check_size("tokens", args.tokens.size(), rows);
  check_size("token_logprobs", args.token_logprobs.size(), rows);
  check_tops(args.num_top, rows, vocab, args.top_tokens.size(), args.top_logprobs.size());
  for (int64_t r = 0; r < rows; ++r) {
    const SamplingRow& row = args.rows[r];
    check_params(row.params, r);
    PECIA_CHECK(row.uniform >= 0 && row.uniform < 1, "rows[{}].uniform is {}", r, row.uniform);
    if (row.params.repetition_penalty != 1) check_vocabulary("prompt", row.prompt, r, vocab);
    check_vocabulary("output", row.output, r, vocab);
    check_bias(row.bias, r);
    for (const LogitBias& each : row.bias)
      PECIA_CHECK(each.token < vocab, "rows[{}] has a bias of token {}, outside [0, {})", r,
                  each.token, vocab);
  }
}

void validate(const LogProbsArgs& args) {
  const int64_t vocab = check_logits(args.logits), rows = args.logits.rows();
  check_size("tokens", args.tokens.size(), rows);
  check_size("token_logprobs", args.token_logprobs.size(), rows);
  check_tops(args.num_top, rows, vocab, args.top_tokens.size(), args.top_logprobs.size());
  for (int64_t r = 0; r < rows; ++r)
    PECIA_CHECK(args.tokens[r] >= 0 && args.tokens[r] < vocab, "tokens[{}] is {}, outside [0, {})",
                r, args.tokens[r], vocab);
}

void validate(const ShortlistArgs& args) {
  const int64_t part = check_logits(args.logits), rows = args.logits.rows();
  PECIA_CHECK(args.first_token >= 0, "first_token is {}", args.first_token);
  PECIA_CHECK(args.num_candidates >= 1 && args.num_candidates <= part, "{} candidates of {} tokens",
              args.num_candidates, part);
  PECIA_CHECK(args.num_top >= 0 && args.num_top <= part, "{} top tokens of {}", args.num_top, part);
  check_size("log_sums", args.log_sums.size(), rows);
  check_size("candidates", args.candidates.size(), rows * args.num_candidates);
  check_size("tops", args.tops.size(), rows * args.num_top);
  if (!args.wanted.empty()) {
    check_size("wanted", args.wanted.size(), rows);
    PECIA_CHECK(args.rows.empty() && args.num_candidates == 1, "{} rows and {} candidates",
                args.rows.size(), args.num_candidates);
    return;
  }
  check_size("rows", args.rows.size(), rows);
  for (int64_t r = 0; r < rows; ++r) {
    check_params(args.rows[r].params, r);
    check_bias(args.rows[r].bias, r);
  }
}

}  // namespace pecia::kernels
