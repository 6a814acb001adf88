// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/answer_lengths.hpp"

#include <algorithm>
#include <bit>

#include "lib/base/core/random.hpp"

namespace pecia::schedule {
namespace {

constexpr int64_t telling_answers = 4;  ///< for a mean
constexpr size_t like_answers = 8;      ///< for a quantile
constexpr double likely_share = 0.5;    ///< of the answers that are no longer than that
constexpr int64_t share_of_unknown = 16;

}  // namespace

std::array<AnswerLengths::Class, 3> AnswerLengths::classes_of(const batch::Turn& turn) {
  constexpr ptrdiff_t telling_tokens = 24;
  const auto bits =
      static_cast<int32_t>(std::bit_width(static_cast<uint64_t>(turn.tokens.size()))) +
      (turn.shared_tokens > 0 ? 64 : 0);
  uint64_t hash = 0;
  const auto end = turn.tokens.end();
  for (auto token = end - std::min(telling_tokens, std::ssize(turn.tokens)); token != end; ++token)
    hash = mix(hash, static_cast<uint64_t>(*token));
  const int32_t most = turn.max_new_tokens;
  return {{{most, bits, static_cast<int64_t>(hash >> 1)}, {most, bits}, {most}}};
}

void AnswerLengths::count(int64_t tokens, int64_t allowed) {
  ++answers_;
  tokens_ += tokens;
  allowed_ += allowed;
  ++count_[tokens];
}

void AnswerLengths::insert(const Class& of, int64_t tokens) {
  std::vector<int64_t>& lengths = lengths_[of];
  lengths.insert(std::ranges::upper_bound(lengths, tokens), tokens);
}

void AnswerLengths::add(const batch::Turn& turn, int64_t tokens, int64_t allowed) {
  count(tokens, allowed);
  for (const Class& of : classes_of(turn)) insert(of, tokens);
}

void AnswerLengths::add_earlier(int32_t max_new_tokens, int64_t tokens) {
  count(tokens, max_new_tokens);
  insert({max_new_tokens}, tokens);
}

double AnswerLengths::expected(const batch::Turn& turn, int64_t given) const {
  constexpr double margin = 1.25;
  const auto most = static_cast<double>(turn.max_new_tokens - given);
  if (most <= 0) return 0;
  if (answers_ < telling_answers) return most;
  const double share = margin * static_cast<double>(tokens_) / static_cast<double>(allowed_);
  return std::clamp(share * turn.max_new_tokens - static_cast<double>(given), 1.0, most);
}

int64_t AnswerLengths::likely(const batch::Turn& turn, int64_t given) const {
  const int64_t most = turn.max_new_tokens;
  const auto within = [&](int64_t tokens) {
    return std::clamp(tokens, std::min(given + 1, most), most);
  };
  for (const Class& of : classes_of(turn)) {
    const auto found = lengths_.find(of);
    if (found == lengths_.end() || found->second.size() < like_answers) continue;
    const std::vector<int64_t>& lengths = found->second;
    const auto longer = std::ranges::upper_bound(lengths, given);
    if (longer == lengths.end()) return within(2 * given);
    const auto left = static_cast<double>(lengths.end() - longer);
    return within(*(longer + static_cast<ptrdiff_t>(likely_share * (left - 1) + 0.5)));
  }
  return within(std::max(most / share_of_unknown, 2 * given));
}

std::array<int64_t, 3> AnswerLengths::quantiles() const {
  constexpr std::array shares = {0.1, 0.5, 0.9};
  std::array<int64_t, 3> found{};
  for (size_t i = 0; i < shares.size(); ++i) {
    auto left = static_cast<int64_t>(shares[i] * static_cast<double>(answers_ - 1));
    for (const auto& [tokens, count] : count_) {
      found[i] = tokens;
      if ((left -= count) < 0) break;
    }
  }
  return found;
}

}  // namespace pecia::schedule
