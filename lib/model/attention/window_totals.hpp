// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a rank sends round its ring in layers with a sliding window, and what it would send there in
/// the same passes and modes if the layers had no window.

#include <cstdint>

namespace pecia::attention {

struct WindowTotals {
  int64_t sent_bytes = 0;        ///< as the ring's communicator counted them
  int64_t whole_ring_bytes = 0;  ///< without windows

  WindowTotals& operator+=(const WindowTotals& other) {
    sent_bytes += other.sent_bytes, whole_ring_bytes += other.whole_ring_bytes;
    return *this;
  }
  WindowTotals operator-(const WindowTotals& other) const {
    return {sent_bytes - other.sent_bytes, whole_ring_bytes - other.whole_ring_bytes};
  }
  bool operator==(const WindowTotals&) const = default;

  template <typename A>
  void visit(A& archive) {
    archive(sent_bytes), archive(whole_ring_bytes);
  }
};

}  // namespace pecia::attention
