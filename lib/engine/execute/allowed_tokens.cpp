// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/allowed_tokens.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::execute {

void AllowedTokens::begin(int64_t sequence, std::unique_ptr<grammar::Matcher> matcher) {
  answers_[sequence] = {std::move(matcher)};
}

void AllowedTokens::find(const Wanted& wanted) {
  Answer& answer = answers_.at(wanted.sequence);
  const auto known = wanted.answer.first(wanted.answer.size() - wanted.drafted);
  // A token that does not fit ends the answer on the planning rank, which looks at it as well.
  while (answer.accepted < std::ssize(known) && answer.matcher->accept(known[answer.accepted]))
    ++answer.accepted;
  answer.next.assign(wanted.drafted + 1, {});
  int32_t ahead = 0;
  for (bool fits = true; fits;) {
    Tokens& next = answer.next[ahead];
    next.words.resize(grammar::words_of(vocab_));
    next.count = answer.matcher->allow(next.words);
    fits = ahead < wanted.drafted && answer.matcher->accept(wanted.answer[known.size() + ahead]);
    ahead += fits;
  }
  answer.matcher->take_back(ahead);
}

void AllowedTokens::start(std::vector<Wanted> wanted, const attention::Compute& compute) {
  PECIA_CHECK(!under_way_.valid() && wanted_.empty(), "the tokens of the last pass are not found");
  std::erase_if(wanted, [&](const Wanted& each) { return !has(each.sequence); });
  wanted_ = std::move(wanted);
  if (wanted_.empty() || !compute.device.info().is_gpu()) return;
  under_way_ = std::async(std::launch::async, [this, beside = std::exchange(wanted_, {})] {
    for (const Wanted& each : beside) find(each);
  });
}

void AllowedTokens::wait(const attention::Compute& compute) {
  if (under_way_.valid()) under_way_.get();
  if (wanted_.empty()) return;
  const std::vector<Wanted> wanted = std::exchange(wanted_, {});
  std::vector<std::exception_ptr> failures(compute.stream.num_threads());
  std::atomic<size_t> next = 0;
  const auto find_some = [&](int thread) {
    try {
      for (size_t i = next++; i < wanted.size(); i = next++) find(wanted[i]);
    } catch (...) {  // the pool's threads may not throw
      failures[thread] = std::current_exception();
    }
  };
  compute.stream.pool().run(find_some, [] {});
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

void AllowedTokens::restrict(const TensorView& logits, std::span<const Place> places,
                             int64_t first_token, const attention::Compute& compute) {
  const auto is_restricted = [&](Place place) { return has(place.sequence) && count(place) > 0; };
  if (std::ranges::none_of(places, is_restricted)) return;
  const int64_t words = grammar::words_of(vocab_);
  words_of_rows_.assign(places.size() * words, ~uint32_t{0});
  for (size_t row = 0; row < places.size(); ++row)
    if (is_restricted(places[row]))
      std::ranges::copy(answers_.at(places[row].sequence).next[places[row].ahead].words,
                        words_of_rows_.begin() + static_cast<int64_t>(row) * words);
  compute.backend.mask_tokens({logits, first_token, words_of_rows_}, compute.stream);
}

}  // namespace pecia::execute
