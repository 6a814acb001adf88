// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/key_copy.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::parallel {

std::vector<HeldRun> held_between(const std::vector<StridedRange>& held, int64_t begin,
                                  int64_t end) {
  std::vector<HeldRun> runs;
  int64_t index = 0;
  for (const StridedRange& range : held) {
    const IndexRun found = indices_between(range, begin, end);
    if (found.count > 0)
      runs.push_back(
          {index + found.begin, {range.position(found.begin), found.count, range.stride}});
    index += range.count;
  }
  return runs;
}

PassSequence KeyCopy::rows() const {
  return {to, first, count, static_cast<int32_t>(team().index_of(instance).value())};
}

std::vector<KeyCopy> key_copies(const KvMap& map, SequenceId of, SequenceId to, int64_t first,
                                const std::vector<KeptShare>& shares, bool with_state) {
  PECIA_CHECK(map.length(to) == first, "copy {} of sequence {} has {} tokens, {} come before", to,
              of, map.length(to), first);
  std::vector<int32_t> places;
  for (int instance = 0; instance < map.instances(); ++instance)
    if (map.reserved(to, instance) > 0) places.push_back(instance);
  std::vector<KeyCopy> copies;
  for (const KeptShare& share : shares) {
    if (share.tokens == 0) continue;
    KeyCopy copy{of, to, share.instance, first, share.tokens, places, {}, SequenceState::nobody};
    int64_t found = 0;
    for (int instance = 0; instance < map.instances(); ++instance) {
      KeySource source{instance, {}};
      for (const HeldRun& run :
           held_between(map.ranges(of, instance), first, first + share.tokens)) {
        source.positions.push_back(run.positions);
        found += run.positions.count;
      }
      if (!source.positions.empty()) copy.sources.push_back(std::move(source));
    }
    PECIA_CHECK(found == share.tokens, "{} of {} tokens of sequence {} from {} on are there", found,
                share.tokens, of, first);
    first += share.tokens;
    copies.push_back(std::move(copy));
  }
  if (with_state && !copies.empty()) copies.back().state_from = map.state_holder(of);
  return copies;
}

}  // namespace pecia::parallel
