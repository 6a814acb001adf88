// SPDX-License-Identifier: Apache-2.0
#include "lib/execute/allowed_tokens.hpp"

#include <algorithm>

#include "lib/core/error.hpp"

namespace pecia::execute {

void AllowedTokens::begin(int64_t sequence, std::unique_ptr<grammar::Matcher> matcher) {
  answers_[sequence] = {std::move(matcher), 0, 0, {}};
}

void AllowedTokens::find(const Wanted& wanted) {
  Answer& answer = answers_.at(wanted.sequence);
  // A token that does not fit ends the answer on the planning rank, which looks at it as well.
  while (answer.accepted < std::ssize(wanted.answer) &&
         answer.matcher->accept(wanted.answer[answer.accepted]))
    ++answer.accepted;
  answer.addends.resize(vocab_);
  answer.count = answer.matcher->allow(answer.addends);
}

void AllowedTokens::start(std::vector<Wanted> wanted) {
  PECIA_CHECK(!under_way_.valid(), "the tokens of the last pass are not yet found");
  std::erase_if(wanted, [&](const Wanted& each) { return !has(each.sequence); });
  if (wanted.empty()) return;
  under_way_ = std::async(std::launch::async, [this, wanted = std::move(wanted)] {
    for (const Wanted& each : wanted) find(each);
  });
}

void AllowedTokens::wait() {
  if (under_way_.valid()) under_way_.get();
}

void AllowedTokens::restrict(const TensorView& logits, std::span<const int64_t> sequences,
                             int64_t first_token, const context::Compute& compute,
                             device::Buffer& workspace) {
  const int64_t width = logits.size(1);
  const auto is_restricted = [&](int64_t sequence) {
    return has(sequence) && answers_.at(sequence).count > 0;
  };
  for (size_t begin = 0; begin < sequences.size();) {
    size_t end = begin;
    while (end < sequences.size() && is_restricted(sequences[end])) ++end;
    const auto rows = static_cast<int64_t>(end - begin);
    if (rows > 0) {
      const TensorView there = workspace.tensor(DType::fp32, {rows, width});
      for (int64_t row = 0; row < rows; ++row) {
        // Stays until the next pass, before which the tokens sampled here are known.
        float* const here = answers_.at(sequences[begin + row]).addends.data() + first_token;
        compute.copy({here, DType::fp32, {1, width}}, there.slice_rows(row, 1));
      }
      compute.backend.add({there, logits.slice_rows(static_cast<int64_t>(begin), rows)},
                          compute.stream);
    }
    begin = std::max(end, begin + 1);
  }
}

}  // namespace pecia::execute
