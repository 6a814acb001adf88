// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/sampling/ranking.hpp"
#include "kernels/cpu/sampling/vocabulary.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

/// The filters and the draw; weights are relative to the most likely token's. Returns no_token where
/// the weights have no finite sum.
int32_t draw(const SamplingRow& row, int64_t vocab, const RowScratch& scratch) {
  const SamplingParams& params = row.params;
  Ranking ranking(scratch.scores, scratch.ids, vocab);
  int64_t kept = params.top_k > 0 ? std::min<int64_t>(params.top_k, vocab) : vocab;
  if (kept < vocab) ranking.sort_until(kept);
  const float best = scratch.scores[ranking.at(0)];
  const auto weight = [&](int64_t rank) {
    return std::exp((double{scratch.scores[ranking.at(rank)]} - best) / params.temperature);
  };

  double sum = 0;
  if (kept < vocab)
    for (int64_t rank = 0; rank < kept; ++rank) sum += weight(rank);
  else
    sum = sum_exp(scratch.scores, vocab, best, 1 / params.temperature);
  if (!(sum > 0) || !std::isfinite(sum)) return no_token;

  if (params.top_p < 1 || params.min_p > 0) {
    const double enough = params.top_p * sum;
    double below = 0;
    int64_t count = 0;
    for (; count < kept && (params.top_p == 1 || below < enough); ++count) {
      const double next = weight(count);
      if (next < params.min_p) break;
      below += next;
    }
    kept = count;
    sum = below;
  }

  // Rounding may put the target above all weights together. Tokens without weight, as masked ones,
  // are not drawn then either.
  const double target = row.uniform * sum;
  int64_t rank = 0;
  for (double below = weight(0); below <= target && rank + 1 < kept; ++rank) {
    const double next = weight(rank + 1);
    if (next == 0) break;
    below += next;
  }
  return ranking.at(rank);
}

int32_t choose(const SamplingRow& row, const float* logits, int64_t vocab, int32_t most_likely,
               const RowScratch& scratch) {
  if (row.params.greedy() && !adjusts(row)) return most_likely;
  std::copy_n(logits, vocab, scratch.scores);
  adjust(row, 0, vocab, scratch);
  if (row.params.greedy()) return static_cast<int32_t>(argmax(scratch.scores, vocab));
  return draw(row, vocab, scratch);
}

/// What the plain softmax of a row says; nothing, where the normaliser is not finite.
struct Softmax {
  int32_t most_likely;
  double normaliser;

  bool exists() const { return std::isfinite(normaliser); }
};

template <typename Args>
Softmax write_tops(const Args& args, int64_t r, const RowScratch& scratch) {
  const int64_t vocab = args.logits.size(1);
  const auto* logits = static_cast<const float*>(args.logits.row(r));
  const int64_t best = argmax(logits, vocab);
  const double normaliser =
      best < vocab ? logits[best] + std::log(sum_exp(logits, vocab, logits[best], 1.0f)) : NAN;
  const Softmax softmax{static_cast<int32_t>(best), normaliser};
  if (!softmax.exists()) {
    const int64_t width = args.num_top < 0 ? vocab : args.num_top;
    std::fill_n(args.top_logprobs.begin() + r * width, width, NAN);
    if (args.num_top > 0) std::fill_n(args.top_tokens.begin() + r * width, width, no_token);
    return softmax;
  }
  if (args.num_top < 0)
    for (int64_t token = 0; token < vocab; ++token)
      args.top_logprobs[r * vocab + token] = static_cast<float>(logits[token] - normaliser);
  if (args.num_top > 0) {
    Ranking ranking(logits, scratch.ids, vocab);
    ranking.sort_until(args.num_top);
    for (int64_t i = 0; i < args.num_top; ++i) {
      args.top_tokens[r * args.num_top + i] = ranking.at(i);
      args.top_logprobs[r * args.num_top + i] =
          static_cast<float>(logits[ranking.at(i)] - normaliser);
    }
  }
  return softmax;
}

/// choose_token(row, softmax, scratch) → token, for every row.
template <typename Args, typename Choose>
void for_each_row(const Args& args, const device::Stream& stream, Workspace& workspace,
                  const Choose& choose_token) {
  const int64_t vocab = args.logits.size(1);
  workspace.reserve_threads(stream.num_threads(), RowScratch::bytes(vocab));
  for_each_task(stream, args.logits.rows(), [&](int64_t r, const Worker& worker) {
    const RowScratch scratch(workspace.of_thread(worker.thread), vocab);
    const Softmax softmax = write_tops(args, r, scratch);
    const int32_t token = choose_token(r, softmax, scratch);
    args.token_logprobs[r] =
        softmax.exists() && token != no_token
            ? static_cast<float>(static_cast<const float*>(args.logits.row(r))[token] -
                                 softmax.normaliser)
            : NAN;
  });
}

}  // namespace

void sample(const SamplingArgs& args, const device::Stream& stream, Workspace& workspace) {
  for_each_row(
      args, stream, workspace, [&](int64_t r, const Softmax& softmax, const RowScratch& scratch) {
        const auto* logits = static_cast<const float*>(args.logits.row(r));
        return args.tokens[r] = softmax.exists() ? choose(args.rows[r], logits, args.logits.size(1),
                                                          softmax.most_likely, scratch)
                                                 : no_token;
      });
}

void log_probs(const LogProbsArgs& args, const device::Stream& stream, Workspace& workspace) {
  for_each_row(args, stream, workspace,
               [&](int64_t r, const Softmax&, const RowScratch&) { return args.tokens[r]; });
}

}  // namespace pecia::kernels::cpu
