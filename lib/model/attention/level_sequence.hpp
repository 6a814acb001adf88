// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "lib/model/attention/token_importance.hpp"
#include "lib/ranks/parallel/levels.hpp"
#include "lib/ranks/parallel/ranges.hpp"

namespace pecia::attention {

/// Where the tokens of a part are in this rank's memory.
struct PartPlaces {
  std::vector<parallel::SlotRange> cached_slots, row_slots;
  int64_t first_row = 0;  ///< of q
};

/// A sequence of a pass by levels: its tokens by part, and where they are if the part is here.
struct SequenceParts {
  parallel::LevelSequence parts;
  std::vector<PartPlaces> here;
  int sink_part = 0;  ///< the part whose first tokens are the sinks
  int64_t sinks = 0;
  TokenImportance::Sequence tokens;
};

}  // namespace pecia::attention
