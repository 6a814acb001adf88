// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/drafts/suffix_index.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/base/core/random.hpp"

namespace pecia::drafts {
namespace {

/// Grows by half at a time, so that no more than a third is unused.
template <typename T>
void push(std::vector<T>& to, T value) {
  if (to.size() == to.capacity()) to.reserve(to.size() + to.size() / 2 + 16);
  to.push_back(value);
}

}  // namespace

/// The slot that two tokens have, or would get.
size_t SuffixIndex::slot_of(int32_t first, int32_t second) const {
  const size_t last = latest_.size() - 1;
  size_t slot = mix(static_cast<uint32_t>(first), static_cast<uint32_t>(second)) & last;
  while (latest_[slot] != none &&
         (tokens_[latest_[slot] - 1] != first || tokens_[latest_[slot]] != second))
    slot = (slot + 1) & last;
  return slot;
}

void SuffixIndex::widen() {
  const std::vector<Place> all =
      std::exchange(latest_, std::vector<Place>(2 * latest_.size(), none));
  for (const Place place : all)
    if (place != none) latest_[slot_of(tokens_[place - 1], tokens_[place])] = place;
}

void SuffixIndex::add(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) add(token);
}

void SuffixIndex::add(int32_t token) {
  PECIA_CHECK(size() < std::numeric_limits<Place>::max(), "a text of {} tokens", size());
  const auto place = static_cast<Place>(size());
  push(tokens_, token);
  push(before_, none);
  if (place == 0 || token == end_of_text || tokens_[place - 1] == end_of_text) return;
  Place& latest = latest_[slot_of(tokens_[place - 1], token)];
  before_[place] = std::exchange(latest, place);
  if (before_[place] == none && 2 * ++pairs_ > latest_.size()) widen();
}

std::span<const int32_t> SuffixIndex::end() const {
  return std::span(tokens_).last(std::min(size(), most_match));
}

/// How many tokens up to this place are the last ones of `end`.
int64_t SuffixIndex::match_at(Place place, std::span<const int32_t> end) const {
  const int64_t most = std::min({int64_t{place} + 1, std::ssize(end), most_match});
  int64_t match = 0;
  while (match < most && tokens_[place - match] == end[std::ssize(end) - 1 - match]) ++match;
  return match;
}

int32_t SuffixIndex::token_after(Place place, int64_t ahead) const {
  return place + ahead < size() ? tokens_[place + ahead] : end_of_text;
}

Draft SuffixIndex::continuation(std::span<const int32_t> end, int64_t most) const {
  if (std::ssize(end) < least_match) return {};
  std::vector<Place> places;  // after the longest match, the latest first
  int64_t longest = 0, seen = 0;
  for (Place place = latest_[slot_of(end[end.size() - 2], end.back())];
       place != none && seen < most_places; place = before_[place]) {
    if (token_after(place, 1) == end_of_text) continue;  // the end itself, too
    ++seen;
    const int64_t match = match_at(place, end);
    if (match < longest) continue;
    if (match > std::exchange(longest, match)) places.clear();
    places.push_back(place);
  }
  Draft draft{{}, longest};
  for (int64_t ahead = 1; ahead <= most; ++ahead) {
    int32_t chosen = end_of_text;
    int64_t votes = 0;
    const auto token_at = [&](Place place) { return token_after(place, ahead); };
    for (auto place = places.begin(); place != places.end() && 2 * votes < std::ssize(places);
         ++place) {
      const int32_t token = token_at(*place);
      const auto agree = std::ranges::count(places, token, token_at);
      if (token != end_of_text && agree > votes) chosen = token, votes = agree;
    }
    if (votes == 0) break;
    draft.tokens.push_back(chosen);
    std::erase_if(places, [&](Place place) { return token_at(place) != chosen; });
  }
  return draft;
}

int64_t SuffixIndex::bytes() const {
  return static_cast<int64_t>(sizeof(int32_t) * tokens_.capacity() +
                              sizeof(Place) * (before_.capacity() + latest_.capacity()));
}

}  // namespace pecia::drafts
