// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/journal_replay.hpp"

#include "lib/base/core/error.hpp"

namespace pecia::test {

using schedule::Yield;
using schedule::YieldKind;

void JournalReplay::count(const Yield& yield) {
  outside_.take(yield);
  counted_.parked += yield.kind == YieldKind::parked;
  counted_.forgotten += yield.kind == YieldKind::forgotten;
  if (yield.kind == YieldKind::moved) ++counted_.moved, counted_.moved_tokens += yield.tokens;
}

void JournalReplay::take(const std::vector<Yield>& yields, const schedule::Plan& plan,
                         bool elastic) {
  std::vector<int64_t> parked, returned, told;
  for (const Yield& yield : yields) {
    count(yield);
    if (yield.kind == YieldKind::parked) parked.push_back(yield.sequence);
    if (yield.kind == YieldKind::returned) returned.push_back(yield.sequence);
  }
  if (elastic) return;
  for (const int64_t sequence : plan.removed)
    std::erase(parked, sequence), std::erase(returned, sequence);
  for (const auto& back : plan.returned) told.push_back(back.sequence);
  PECIA_CHECK(parked == plan.parked && returned == told,
              "plan {} parks {} and brings back {} sequences, the journal {} and {}", plan.number,
              plan.parked.size(), told.size(), parked.size(), returned.size());
}

void JournalReplay::check_end(schedule::Scheduler& scheduler) {
  for (const Yield& yield : scheduler.take_yields()) count(yield);
  const schedule::DemandCounts& demand = scheduler.demand();
  PECIA_CHECK(counted_.parked == demand.parked && counted_.forgotten == demand.forgotten &&
                  counted_.moved == demand.moved && counted_.moved_tokens == demand.moved_tokens,
              "the journal has {} parked, {} forgotten, {} moved; {}, {}, {} were counted",
              counted_.parked, counted_.forgotten, counted_.moved, demand.parked, demand.forgotten,
              demand.moved);
  PECIA_CHECK(outside_.parked() == 0, "{} sequences are parked at the end", outside_.parked());
}

}  // namespace pecia::test
