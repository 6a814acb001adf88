// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Jobs and rows for tests of the results file; every value is a function of the turn.

#include <numeric>

#include "lib/files/results/results.hpp"

namespace pecia::io {

inline bool operator==(const TurnResult& a, const TurnResult& b) {
  const auto fields = [](const TurnResult& r) {
    return std::tie(r.tokens, r.token_logprobs, r.top_tokens, r.top_logprobs, r.prompt_logprobs,
                    r.prompt_top_tokens, r.prompt_top_logprobs, r.prompt_tokens, r.cached_tokens,
                    r.truncated_tokens, r.finish_reason, r.error, r.queue_s, r.ttft_s, r.decode_s,
                    r.prefill_compute_s, r.prefill_comm_s, r.decode_compute_s, r.decode_comm_s,
                    r.mode, r.replica, r.yields, r.draft_accepted, r.text_bytes, r.vectors,
                    r.scores, r.score_logprobs);
  };
  return fields(a) == fields(b);
}

}  // namespace pecia::io

namespace pecia::test {

/// `num_turns` turns with 0 … 9 slots and 1 … 4 prompt tokens.
inline io::ResultsLayout sample_layout(int64_t num_turns, int logprobs, int prompt_logprobs) {
  io::ResultsLayout layout;
  for (int64_t t = 0; t < num_turns; ++t)
    layout.turns.push_back({"request-" + std::to_string(t / 2), static_cast<int32_t>(t % 3), t / 2,
                            static_cast<int32_t>(t % 2), t * 7 % 10, 1 + t % 4});
  layout.inputs = {"prompts/a.h5", "prompts/b.h5", "prompts/c.h5"};
  layout.vocab = 11;
  layout.logprobs = logprobs;
  layout.prompt_logprobs = prompt_logprobs;
  layout.identity = R"({"model":"m"})";
  return layout;
}

template <typename T>
std::vector<T> ramp(int64_t count, T first, T step) {
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = first + static_cast<T>(i) * step;
  return values;
}

/// A whole row with `num_tokens` tokens; one with fewer tokens begins alike.
inline io::TurnResult sample_result(const io::ResultsLayout& layout, int64_t turn,
                                    int64_t num_tokens) {
  const auto width = [&](int k) { return k == -1 ? layout.vocab : int64_t{k}; };
  const auto id = static_cast<int32_t>(turn);
  const auto base = static_cast<float>(-turn);
  const int64_t prompt = layout.prompt_logprobs != 0 ? layout.turns[turn].prompt_tokens : 0;
  io::TurnResult result;
  result.tokens = ramp<int32_t>(num_tokens, 1000 * id + 1, 1);
  for (int32_t& token : result.tokens) token %= static_cast<int32_t>(layout.vocab);
  result.token_logprobs = ramp<float>(num_tokens, base - 0.5f, -0.25f);
  if (layout.logprobs > 0)
    result.top_tokens = ramp<int32_t>(num_tokens * layout.logprobs, id + 7, 2);
  result.top_logprobs = ramp<float>(num_tokens * width(layout.logprobs), base - 1, -0.125f);
  result.prompt_logprobs = ramp<float>(prompt, base - 2, -0.5f);
  if (layout.prompt_logprobs > 0)
    result.prompt_top_tokens = ramp<int32_t>(prompt * layout.prompt_logprobs, id + 3, 1);
  result.prompt_top_logprobs = ramp<float>(prompt * width(layout.prompt_logprobs), base - 3, -1);
  result.prompt_tokens = static_cast<int32_t>(layout.turns[turn].prompt_tokens);
  result.cached_tokens = id + 1;
  result.truncated_tokens = 3 * id;
  result.finish_reason = io::FinishReason::length;
  result.text_bytes = turn % 3 == 0 ? -1 : (int64_t{1} << 40) + turn;
  result.queue_s = 0.5f + static_cast<float>(id);
  result.ttft_s = 1.5f;
  result.decode_s = 2.5f;
  result.prefill_compute_s = 3.5f;
  result.prefill_comm_s = 4.5f;
  result.decode_compute_s = 5.5f;
  result.decode_comm_s = 6.5f;
  result.mode = "ring/pass_kv+pass_q";
  result.replica = id % 4;
  result.yields = id % 3;
  result.draft_accepted = 2 * id + 1;
  return result;
}

}  // namespace pecia::test
