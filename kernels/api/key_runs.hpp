// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds the keys of an item that some queries may see, by arithmetic alone. An item's keys are
/// counted through its runs, from the first key of the first run on.

#include <cstdint>
#include <span>

#include "kernels/api/attention.hpp"

namespace pecia::kernels {

/// Keys [begin, end).
struct KeyRange {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const KeyRange&) const = default;
};

/// Key `key` of run `run`.
struct KeyPlace {
  int64_t run, key;
};

inline std::span<const KeyRun> runs_of(const AttentionArgs& args, const AttentionItem& item) {
  return args.runs.subspan(item.first_run, item.num_runs);
}

int64_t num_keys(std::span<const KeyRun> runs);

/// Counts the keys of the run that a query sees.
int64_t count_seen(const KeyRun& run, int64_t query, Window window);

/// Returns the range from the first to the last key that some query at a position in [first, last]
/// sees, whatever is between them. The range is empty if no query sees a key.
KeyRange seen_keys(std::span<const KeyRun> runs, int64_t first, int64_t last, Window window);

/// Returns the place of key `index`. Its run is runs.size() if there are not enough keys.
KeyPlace place_of(std::span<const KeyRun> runs, int64_t index);

}  // namespace pecia::kernels
