// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/recent_slots.hpp"

#include <algorithm>
#include <limits>

#include "lib/base/core/error.hpp"

namespace pecia::attention {

using parallel::SequenceId;
using parallel::SlotRange;
using parallel::StridedRange;

namespace {

/// The tokens before the first one that stands at `position` or later.
int64_t tokens_before(const std::vector<StridedRange>& ranges, int64_t position) {
  int64_t before = 0;
  for (const StridedRange& range : ranges) {
    const auto later =
        parallel::indices_between(range, position, std::numeric_limits<int64_t>::max());
    if (later.count > 0) return before + later.begin;
    before += range.count;
  }
  return before;
}

}  // namespace

RecentSlots::RecentSlots(const RecentLayers& layers, int instances, int instance)
    : layers_(layers), instances_(instances), instance_(instance), pool_(layers.capacity / block) {
  PECIA_CHECK(layers.any() && layers.capacity % block == 0, "a window of {} tokens, {} slots",
              layers.window.tokens, layers.capacity);
}

RecentSlots::Sequence& RecentSlots::of(SequenceId sequence) {
  Sequence& found = sequences_[sequence];
  found.evicted.resize(instances_);
  return found;
}

std::vector<SlotRange> RecentSlots::extend(SequenceId sequence, int64_t held, int64_t count) {
  Sequence& grows = of(sequence);
  const int64_t first = held - grows.evicted[instance_];  // of the new tokens, among its slots
  const int64_t blocks = (first + count + block - 1) / block - std::ssize(grows.blocks);
  if (blocks > 0) {
    PECIA_CHECK(blocks <= pool_.free(),
                "sequence {} wants {} more KV slots in layers with a window, {} are free", sequence,
                blocks * block, pool_.free() * block);
    for (const SlotRange& range : pool_.take(blocks))
      for (int64_t taken = range.begin; taken < range.end; ++taken) grows.blocks.push_back(taken);
    most_taken_ = std::max(most_taken_, taken());
  }
  std::vector<SlotRange> found;
  int64_t skipped = first, left = count;
  for (const SlotRange& range : slots(sequence)) {
    const int64_t begin = std::min(range.begin + skipped, range.end);
    const int64_t end = std::min(begin + left, range.end);
    if (begin < end) found.push_back({begin, end});
    skipped -= begin - range.begin;
    left -= end - begin;
  }
  return found;
}

/// Counts the tokens on an instance that no later row sees, in whole blocks.
int64_t RecentSlots::unseen(const parallel::KvMap& map, SequenceId sequence, int instance) const {
  const int64_t first = layers_.first_kept(map.length(sequence));
  return tokens_before(map.ranges(sequence, instance), first) / block * block;
}

void RecentSlots::take_again(const parallel::KvMap& map, SequenceId sequence) {
  remove(sequence);
  Sequence& of_sequence = of(sequence);
  for (int instance = 0; instance < instances_; ++instance)
    of_sequence.evicted[instance] = unseen(map, sequence, instance);
  extend(sequence, map.held(sequence, instance_), 0);
}

void RecentSlots::forget(const parallel::KvMap& map, SequenceId sequence) {
  Sequence& of_sequence = of(sequence);
  for (int instance = 0; instance < instances_; ++instance) {
    const int64_t evicted = unseen(map, sequence, instance);
    const int64_t more = evicted - of_sequence.evicted[instance];
    PECIA_CHECK(more >= 0, "{} tokens of sequence {} were evicted, and {} are",
                of_sequence.evicted[instance], sequence, evicted);
    of_sequence.evicted[instance] = evicted;
    if (instance != instance_) continue;
    const auto end = of_sequence.blocks.begin() + more / block;
    for (auto given = of_sequence.blocks.begin(); given != end; ++given)
      pool_.give_back({{*given, *given + 1}});
    of_sequence.blocks.erase(of_sequence.blocks.begin(), end);
  }
}

void RecentSlots::shorten(const parallel::KvMap& map, SequenceId sequence) {
  Sequence& shorter = of(sequence);
  const int64_t tokens = map.held(sequence, instance_) - shorter.evicted[instance_];
  for (; std::ssize(shorter.blocks) > (tokens + block - 1) / block; shorter.blocks.pop_back())
    pool_.give_back({{shorter.blocks.back(), shorter.blocks.back() + 1}});
}

void RecentSlots::remove(SequenceId sequence) {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) return;
  for (const int64_t given : found->second.blocks) pool_.give_back({{given, given + 1}});
  sequences_.erase(found);
}

void RecentSlots::verify(const parallel::KvMap& map) const {
  std::vector<SlotRange> taken;
  for (const auto& [sequence, of] : sequences_) {
    PECIA_CHECK(map.contains(sequence) && !map.is_parked(sequence),
                "sequence {} has blocks of recent tokens, and is not in the cache", sequence);
    for (const int64_t number : of.blocks) taken.push_back({number, number + 1});
  }
  pool_.verify(std::move(taken));
}

int64_t RecentSlots::evicted(SequenceId sequence, int instance) const {
  const auto found = sequences_.find(sequence);
  return found == sequences_.end() ? 0 : found->second.evicted.at(instance);
}

std::vector<SlotRange> RecentSlots::slots(SequenceId sequence) const {
  std::vector<SlotRange> ranges;
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) return ranges;
  for (const int64_t of : found->second.blocks) {
    if (!ranges.empty() && ranges.back().end == of * block)
      ranges.back().end += block;
    else
      ranges.push_back({of * block, (of + 1) * block});
  }
  return ranges;
}

}  // namespace pecia::attention
