// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One rank of a group whose other ranks do not exist. Messages have sizes and peers but no
/// contents, and take no time. The traffic is the traffic of that rank in a real group.

#include <memory>
#include <vector>

#include "lib/ranks/comm/communicator.hpp"

namespace pecia::comm {

/// Bytes to or from a rank of the outermost group.
struct PhantomMessage {
  int64_t bytes;
  int peer;
  bool operator==(const PhantomMessage&) const = default;
};

/// Messages that start together. Empty ones, and those of a rank to itself, do not travel and are
/// left out.
struct PhantomStart {
  /// The group, and the team in it if there is one: the same number on all its ranks.
  uint64_t group = 0;
  /// A message of a series has the place among all of its pair and group. Others belong to an
  /// operation of the group: all its ranks start the same ones in the same order.
  bool in_series = false;
  int step = 0;  ///< of the operation: 0, 1, … It starts when the one before is done
  std::vector<PhantomMessage> sends = {}, receives = {};
  bool operator==(const PhantomStart&) const = default;
};

/// Is told what a phantom does with messages.
class PhantomListener {
 public:
  virtual ~PhantomListener() = default;
  /// Messages start. Returns a number for them.
  virtual int64_t started(const PhantomStart& start) = 0;
  /// The rank waits until messages with this number are done.
  virtual void waited(int64_t number) = 0;
};

/// Makes rank `rank` of `size`. Transfers touch no buffer and are done at once; sums are left out.
/// Exchanges of small values (all_gather, all_reduce_…) return what they would if every rank had
/// given this rank's value, and nobody is told of them. A broadcast from another root leaves the
/// bytes unchanged. Communicator::part makes groups from lists of ranks. split, split_by_host and
/// shared counters throw Unsupported, because they need answers from other ranks. `listener`, if
/// any, is also told of the parts, and outlives them all.
std::unique_ptr<Communicator> make_phantom_communicator(int rank, int size,
                                                        PhantomListener* listener = nullptr);

}  // namespace pecia::comm
