// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/yield_notes.hpp"

#include <utility>
#include <vector>

namespace pecia::execute {

void note_yields(schedule::Scheduler& scheduler, int64_t pass, report::Recorder& recorder) {
  if (!scheduler.on_demand()) return;
  for (const schedule::Yield& yield : scheduler.take_yields()) {
    std::vector<std::pair<const char*, double>> numbers{
        {"of_pass", static_cast<double>(pass)},
        {"sequence", static_cast<double>(yield.sequence)},
        {"row", static_cast<double>(yield.row)},
        {"tokens", static_cast<double>(yield.tokens)}};
    if (yield.from >= 0) numbers.emplace_back("from", static_cast<double>(yield.from));
    if (yield.to >= 0) numbers.emplace_back("to", static_cast<double>(yield.to));
    recorder.note("yield", std::move(numbers), schedule::name_of(yield.kind));
  }
  const schedule::OutOfCache& outside = scheduler.outside();
  recorder.draw("memory on demand", {{"in the cache", static_cast<double>(scheduler.running())},
                                     {"parked", static_cast<double>(outside.parked())},
                                     {"forgotten", static_cast<double>(outside.forgotten())}});
}

}  // namespace pecia::execute
