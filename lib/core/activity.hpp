// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a rank's main thread is at, for a thread that looks on (watch::Watch). The main thread alone
/// writes; the stores are relaxed, so a reader may see parts of two neighbouring moments together.

#include <array>
#include <atomic>
#include <cstdint>

namespace pecia {

/// A field that the main thread writes. A store costs what one of a plain variable does.
template <typename T>
class Published {
 public:
  explicit Published(T value = T{}) : value_(value) {}
  void operator=(T value) { value_.store(value, std::memory_order_relaxed); }
  operator T() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<T> value_;
};

/// All names are string literals.
struct Activity {
  Published<const char*> phase{"start"};
  Published<const char*> span{""};  ///< begun last
  Published<int32_t> layer{-1};
  Published<int64_t> pass{-1};

  /// Operations of a group of ranks, counted: 1, 2, … of equal name and number on all its ranks.
  struct Series {
    Published<uint64_t> group{0};  ///< the same on all its ranks; 0: not in use
    Published<int64_t> number{0};  ///< of the one begun last
  };
  std::array<Series, 64> series;

  /// The operation that this rank waits for; "": none, or not for long. One that was given up (its
  /// wait has failed) stays.
  struct Wait {
    Published<const char*> operation{""};
    Published<uint64_t> group{0};
    Published<int64_t> number{0};
  } wait;
};

}  // namespace pecia
