// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Elastic teams, steps 1 and 2: whether a waiting request begins, and on which instances it has its
/// KV slots. Source: LoongServe (dispatching; elastic instance allocation).
///
/// LoongServe dispatches a batch and then allocates instances to it. Here each request is placed by
/// itself as soon as an instance can read it, so the batch of an instance is what was placed there.

#include <cstdint>
#include <optional>
#include <vector>

namespace pecia::schedule {

/// An instance as a waiting request sees it.
struct InstanceRoom {
  struct Prompt {
    double due_s = 0;
    int64_t tokens = 0;
  };
  bool idle = true;  ///< it takes part in no pass now
  int64_t free_slots = 0;
  int64_t sequences = 0;            ///< that have slots there
  std::vector<Prompt> unread = {};  ///< what prompts that have begun still have to read
};

struct PlacementLimits {
  int64_t sequences = 1;    ///< most on an instance
  int64_t pass_tokens = 1;  ///< new tokens that fill a pass of an instance
};

/// The instance where a request begins that fits into one: it is idle and has the slots, and the
/// prompts that it reads before this one do not fill a pass. So it is not compute-bound yet, and
/// instances take requests as they get on with them. Of several it is the one with the fewest
/// sequences, and of these the one with most free slots. Absent: the request waits. Prompts count as
/// read before if they are due no later.
std::optional<int> place_of(const std::vector<InstanceRoom>& instances, int64_t slots, double due_s,
                            const PlacementLimits& limits);

/// Slots by instance for a request that may have from `least` to `most` instances: on the fewest
/// that have them, those with most free slots first and of equal ones the earlier, in proportion to
/// what they have free. The other instances of the team that reads it are free at once when it is
/// read (scale-down). Absent: they have too few.
std::optional<std::vector<int64_t>> slots_on_fewest(int64_t slots,
                                                    const std::vector<int64_t>& free_slots,
                                                    int least, int most);

/// Slots by instance for a sequence that has `has` and is to have `slots` in all. The further ones are
/// on the first of `near` that has them, or else on several of these, in their order; then on others
/// too, those with most free slots first, as long as it has no more than `most` instances. Absent: too
/// few are free. Source: LoongServe, §5.4 (scale-up by memory: nothing that is held moves).
std::optional<std::vector<int64_t>> grown_slots(std::vector<int64_t> has, int64_t slots,
                                                const std::vector<int32_t>& near,
                                                const std::vector<int64_t>& free_slots, int most);

/// Deals `tokens` to places in proportion to their free slots. Each gets the whole part of its
/// share. The tokens left go to the places with the largest fractions, of equal ones to the
/// earlier. No place gets more than it has free.
///
///     10 tokens on 6, 6 and 3 free slots      4, 4, 2
///     10 tokens on 7, 5 and 5                 4, 3, 3 (of 4.12, 2.94, 2.94)
///     10 tokens on 7, 7 and 7                 4, 3, 3
///
/// Throws InvalidArgument if a number is negative or there are more tokens than free slots. The
/// product of tokens and free slots must fit in 63 bits.
std::vector<int64_t> shares_by_free_slots(int64_t tokens, const std::vector<int64_t>& free_slots);

}  // namespace pecia::schedule
