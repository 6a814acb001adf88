// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/answer_lengths.hpp"

#include <algorithm>
#include <bit>

#include "lib/engine/schedule/instruction.hpp"

namespace pecia::schedule {
namespace {

constexpr int64_t telling_answers = 4;  ///< for a mean
constexpr int64_t like_answers = 8;     ///< for a quantile
// Every prompt of a large batch may end differently.
constexpr size_t most_classes = 4096;

}  // namespace

std::array<AnswerLengths::Class, 3> AnswerLengths::classes_of(const batch::Turn& turn) {
  const auto bits =
      static_cast<int32_t>(std::bit_width(static_cast<uint64_t>(turn.tokens.size()))) +
      (turn.shared_tokens > 0 ? 64 : 0);
  const uint64_t hash = instruction_of(turn.tokens);
  const int32_t most = turn.max_new_tokens;
  return {{{most, bits, static_cast<int64_t>(hash >> 1)}, {most, bits}, {most}}};
}

void AnswerLengths::Lengths::add(int64_t tokens) {
  ++count[tokens];
  ++answers;
}

int64_t AnswerLengths::Lengths::quantile(double share, int64_t given) const {
  const auto longer = count.upper_bound(given);
  int64_t left = 0;
  for (auto of = longer; of != count.end(); ++of) left += of->second;
  left = static_cast<int64_t>(share * static_cast<double>(left - 1) + 0.5);
  for (auto of = longer; of != count.end(); ++of)
    if ((left -= of->second) < 0) return of->first;
  return given;
}

void AnswerLengths::add(const batch::Turn& turn, int64_t tokens, int64_t allowed) {
  tokens_ += tokens;
  allowed_ += allowed;
  all_.add(tokens);
  for (const Class& of : classes_of(turn))
    if (of.last_tokens < 0 || like_.size() < most_classes || like_.contains(of))
      like_[of].add(tokens);
}

void AnswerLengths::add_earlier(int32_t max_new_tokens, int64_t tokens) {
  tokens_ += tokens;
  allowed_ += max_new_tokens;
  all_.add(tokens);
  like_[{max_new_tokens}].add(tokens);
}

double AnswerLengths::expected(const batch::Turn& turn, int64_t given) const {
  constexpr double margin = 1.25;
  const auto most = static_cast<double>(turn.max_new_tokens - given);
  if (most <= 0) return 0;
  if (all_.answers < telling_answers) return most;
  const double share = margin * static_cast<double>(tokens_) / static_cast<double>(allowed_);
  return std::clamp(share * turn.max_new_tokens - static_cast<double>(given), 1.0, most);
}

int64_t AnswerLengths::likely(const batch::Turn& turn, int64_t given) const {
  constexpr int64_t share_of_unknown = 16;
  const int64_t most = turn.max_new_tokens;
  int64_t tokens = most / share_of_unknown;
  for (const Class& of : classes_of(turn)) {
    const auto found = like_.find(of);
    if (found == like_.end() || found->second.answers < like_answers) continue;
    tokens = found->second.quantile(0.5, given);
    break;
  }
  if (tokens <= given) tokens = 2 * given;  // longer than any before
  return std::clamp(tokens, std::min(given + 1, most), most);
}

std::array<int64_t, 3> AnswerLengths::quantiles() const {
  if (all_.answers == 0) return {};
  return {all_.quantile(0.1, -1), all_.quantile(0.5, -1), all_.quantile(0.9, -1)};
}

}  // namespace pecia::schedule
