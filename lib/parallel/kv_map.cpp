// SPDX-License-Identifier: Apache-2.0
#include "lib/parallel/kv_map.hpp"

#include <algorithm>

#include "lib/core/error.hpp"

namespace pecia::parallel {
namespace {

/// Extends the last range where the new positions continue it.
void append_range(std::vector<StridedRange>& ranges, GlobalRange added) {
  if (!ranges.empty()) {
    StridedRange& last = ranges.back();
    if (last.stride == 1 && last.begin + last.count == added.begin) {
      last.count += added.size();
      return;
    }
    if (added.size() == 1) {
      if (last.count == 1 && added.begin > last.begin) {
        last.stride = added.begin - last.begin;
        last.count = 2;
        return;
      }
      if (last.count > 1 && last.stride > 1 && last.position(last.count) == added.begin) {
        ++last.count;
        return;
      }
    }
  }
  ranges.push_back({added.begin, added.size(), 1});
}

}  // namespace

std::vector<IndexRun> runs_of(const std::vector<StridedRange>& ranges) {
  constexpr int64_t long_tokens = 64;
  std::vector<IndexRun> runs;
  int64_t begin = 0;
  bool after_long = true;
  for (const StridedRange& range : ranges) {
    const bool is_long = range.count >= long_tokens;
    if (is_long || after_long)
      runs.push_back({begin, range.count});
    else
      runs.back().count += range.count;
    after_long = is_long;
    begin += range.count;
  }
  return runs;
}

void fill_positions(const std::vector<StridedRange>& ranges, int64_t* out) {
  for (const StridedRange& range : ranges)
    for (int64_t i = 0; i < range.count; ++i) *out++ = range.position(i);
}

int64_t count_between(const std::vector<StridedRange>& ranges, int64_t begin, int64_t end) {
  int64_t count = 0;
  for (const StridedRange& range : ranges) {
    // Indices i with begin <= range.begin + i * stride < end.
    const auto first_at_least = [&](int64_t position) {
      const int64_t distance = position - range.begin;
      const int64_t index = distance <= 0 ? 0 : (distance + range.stride - 1) / range.stride;
      return std::min(index, range.count);
    };
    count += std::max<int64_t>(0, first_at_least(end) - first_at_least(begin));
  }
  return count;
}

const KvMap::Sequence& KvMap::at(SequenceId sequence) const {
  const auto found = sequences_.find(sequence);
  PECIA_CHECK(found != sequences_.end(), "sequence {} is not in the KV map", sequence);
  return found->second;
}

void KvMap::add(SequenceId sequence, int64_t reserved, std::optional<SequenceId> parent) {
  PECIA_CHECK(!contains(sequence), "sequence {} is in the KV map already", sequence);
  PECIA_CHECK(reserved >= 0, "sequence {} reserves {} tokens", sequence, reserved);
  Sequence added;
  added.reserved = reserved;
  added.ranks.resize(num_ranks_);
  if (parent) {
    PECIA_CHECK(!at(*parent).parent, "sequence {} is a child itself and cannot be a parent",
                *parent);
    ++at(*parent).children;
    added.parent = parent;
    added.length = at(*parent).length;
  }
  sequences_.emplace(sequence, std::move(added));
  total_reserved_ += reserved;
}

void KvMap::remove(SequenceId sequence) {
  const Sequence& removed = at(sequence);
  PECIA_CHECK(removed.children == 0, "sequence {} still has {} children", sequence,
              removed.children);
  if (removed.parent) --at(*removed.parent).children;
  total_reserved_ -= removed.reserved;
  sequences_.erase(sequence);
}

void KvMap::append(const PassSequence& rows) {
  Sequence& sequence = at(rows.sequence);
  PECIA_CHECK(rows.first == sequence.length, "sequence {} has {} tokens, the pass begins at {}",
              rows.sequence, sequence.length, rows.first);
  PECIA_CHECK(sequence.children == 0, "sequence {} has children and cannot grow", rows.sequence);
  for (int rank = 0; rank < num_ranks_; ++rank) {
    Held& held = sequence.ranks[rank];
    for (const GlobalRange& range : rows_of(rows, num_ranks_, rank)) {
      append_range(held.ranges, range);
      held.tokens += range.size();
    }
    PECIA_CHECK(held.tokens <= sequence.reserved,
                "sequence {} holds {} tokens on rank {}, {} reserved", rows.sequence, held.tokens,
                rank, sequence.reserved);
  }
  sequence.length += rows.count;
}

std::vector<SequenceId> KvMap::lineage(SequenceId sequence) const {
  if (const auto above = at(sequence).parent) return {*above, sequence};
  return {sequence};
}

}  // namespace pecia::parallel
