// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/yields.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {

const char* name_of(YieldKind kind) {
  switch (kind) {
    case YieldKind::parked:
      return "parked";
    case YieldKind::returned:
      return "returned";
    case YieldKind::forgotten:
      return "forgotten";
    case YieldKind::read_again:
      return "read again";
    case YieldKind::moved:
      return "moved";
    case YieldKind::scaled_up:
      return "scaled up";
    case YieldKind::ended:
      return "ended";
  }
  return "?";
}

void OutOfCache::take(const Yield& yield) {
  const int64_t id = yield.sequence;
  const auto require = [&](bool holds) {
    PECIA_CHECK(holds, "sequence {} of row {}, {} tokens, is {}, but before it was {}", id,
                yield.row, yield.tokens, name_of(yield.kind),
                is_parked(id)      ? "parked"
                : is_forgotten(id) ? "forgotten"
                                   : "in the cache");
  };
  switch (yield.kind) {
    case YieldKind::parked:
      require(!is_parked(id) && !is_forgotten(id));
      parked_.emplace(id, yield.tokens);
      return;
    case YieldKind::returned:
      require(is_parked(id) && parked_.at(id) == yield.tokens);
      parked_.erase(id);
      return;
    case YieldKind::forgotten:
      require(!is_forgotten(id));
      parked_.erase(id);
      forgotten_.insert(id);
      return;
    case YieldKind::read_again:
      require(forgotten_.erase(id) == 1);
      return;
    case YieldKind::moved:
    case YieldKind::scaled_up:
      require(!is_parked(id) && !is_forgotten(id) && yield.from != yield.to);
      return;
    case YieldKind::ended:
      require(parked_.erase(id) + forgotten_.erase(id) == 1);
      return;
  }
}

void YieldJournal::add(const Yield& yield) {
  outside_.take(yield);
  untaken_.push_back(yield);
}

void YieldJournal::end(int64_t sequence, int64_t row) {
  if (outside_.is_parked(sequence) || outside_.is_forgotten(sequence))
    add({YieldKind::ended, sequence, row});
}

void YieldJournal::take_return_back(int64_t sequence) {
  const auto same = [&](const Yield& yield) {
    return yield.sequence == sequence && yield.kind == YieldKind::returned;
  };
  const auto last = std::find_if(untaken_.rbegin(), untaken_.rend(), same);
  PECIA_CHECK(last != untaken_.rend(), "sequence {} was not to return", sequence);
  outside_.take({YieldKind::parked, sequence, last->row, last->tokens});
  untaken_.erase(std::next(last).base());
}

}  // namespace pecia::schedule
