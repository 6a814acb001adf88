// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a rank's main thread is doing, for a thread that observes it (watch::Watch). Only the main
/// thread writes. The stores are relaxed, so a reader may see values from two successive moments
/// together.

#include <array>
#include <atomic>
#include <cstdint>

namespace pecia {

/// A field that the main thread writes. A store costs as much as a store to a plain variable.
template <typename T>
class Published {
 public:
  explicit Published(T value = T{}) : value_(value) {}
  void operator=(T value) { value_.store(value, std::memory_order_relaxed); }
  operator T() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<T> value_;
};

/// Names are string literals, so that their pointers stay valid.
struct Activity {
  Published<const char*> phase{"start"};
  Published<const char*> span{""};  ///< the span begun last
  Published<int32_t> layer{-1};
  Published<int64_t> pass{-1};
  Published<int32_t> team{-1};  ///< of the pass; −1 where there is only one
  Published<int32_t> instance{-1};

  /// A counted series of the operations of one group of ranks. Operations with equal group and
  /// number are the same one on all its ranks.
  struct Series {
    Published<uint64_t> group{0};  ///< the same on all ranks of the group; 0: not in use
    Published<int64_t> number{0};  ///< number of the operation begun last: 1, 2, …
  };
  /// Room for 21 groups, which count three series each. A rank of a run is in seven, and in a few
  /// more while it measures.
  std::array<Series, 64> series;

  /// The operation that this rank waits for; "" when it waits for none, or has not waited for long.
  /// An operation whose wait has failed stays here.
  struct Wait {
    Published<const char*> operation{""};
    Published<uint64_t> group{0};
    Published<int64_t> number{0};
  } wait;
};

}  // namespace pecia
