// SPDX-License-Identifier: Apache-2.0
#pragma once
/// An item's keys, counted through its runs from the first key of the first run on: which of them
/// some queries may see, by arithmetic alone.

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

/// How many keys of the run a query sees.
int64_t count_seen(const KeyRun& run, int64_t query, int64_t window);

/// From the first to the last key that some query at a position in [first, last] sees, whatever is
/// between them; empty where none sees any.
KeyRange seen_keys(std::span<const KeyRun> runs, int64_t first, int64_t last, int64_t window);

/// Where key `index` is; run runs.size() where there are not as many.
KeyPlace place_of(std::span<const KeyRun> runs, int64_t index);

}  // namespace pecia::kernels
