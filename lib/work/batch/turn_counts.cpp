// SPDX-License-Identifier: Apache-2.0
#include "lib/work/batch/turn_counts.hpp"

namespace pecia::batch {

TurnCounts count_turns(const io::ResultsFile& results) {
  TurnCounts found;
  for (const io::TurnState state : results.states()) switch (state) {
      case io::TurnState::open:
        ++found.open;
        break;
      case io::TurnState::partial:
        ++found.partial;
        break;
      case io::TurnState::done:
        ++found.done;
        break;
      case io::TurnState::failed:
        ++found.failed;
        break;
    }
  return found;
}

TurnCounts count_turns(const io::ResultsFile* results, comm::Communicator& world) {
  TurnCounts found;
  if (results != nullptr) found = count_turns(*results);
  for (int64_t* count : {&found.open, &found.partial, &found.done, &found.failed})
    *count = world.all_reduce_max(*count);
  return found;
}

}  // namespace pecia::batch
