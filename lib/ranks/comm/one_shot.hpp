// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sums over the ranks of one server in one shot: each rank writes its numbers where the others reach
/// them, and reads those of all others, with one wait in between. A ring has 2 (N − 1) waits, so few
/// bytes come sooner in one shot, and many sooner in a ring, since each rank reads (N − 1) · B bytes in
/// place of 2 (N − 1) / N · B (parallel::most_one_shot_bytes). The kernel is one_shot_kernel.cuh.

#include <memory>
#include <string>

#include "lib/base/device/device.hpp"
#include "lib/base/device/stream.hpp"
#include "lib/ranks/comm/abortable.hpp"
#include "lib/ranks/comm/addends.hpp"

namespace pecia::comm {

/// Of a group of ranks that make the same calls in the same order, all on one stream each.
class OneShot : public Abortable {
 public:
  /// The most bytes of numbers that are taken: the same on every rank.
  virtual int64_t most_bytes() const = 0;
  bool takes(const Addends& values) const { return std::ssize(values.bytes()) <= most_bytes(); }

  /// Enqueues: every value becomes the sum over ranks, added in fp32 in the order of ranks and rounded
  /// once, bitwise the same on every rank. It may be captured into a graph. If a rank never comes, the
  /// stream waits until abort().
  virtual void all_reduce(const Addends& values, device::Stream& stream) = 0;
};

struct FoundOneShot {
  std::unique_ptr<OneShot> sums;
  std::string why_not;  ///< if there are none; the same on every rank
};

inline constexpr const char* one_shot_switch = "PECIA_CUDA_ONE_SHOT";
/// Ranks that may take part.
inline constexpr int most_one_shot_ranks = 8;

class Communicator;

/// Collective over `host`, ranks of one server, which outlives the result: maps memory of each rank's
/// GPU into all ranks' processes (CUDA's IPC). There are no sums where a rank cannot, nor in a build
/// without CUDA. Ending the result is collective, too, except while an exception is under way.
FoundOneShot map_one_shot(Communicator& host, device::Device& device, int64_t most_bytes);

}  // namespace pecia::comm
