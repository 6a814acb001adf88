// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The functions of kernels/cuda/shared/all_devices.cuh on the CPU, for processes that share memory.

#include <sched.h>

#include <atomic>

// The emulator comes before what it emulates.
#include "tests/kernels/emulator/cuda.hpp"
//
#include "kernels/cuda/shared/vectors.cuh"

namespace pecia::kernels::cuda {

inline void tell_all_devices(uint32_t* to, uint32_t value) {
  std::atomic_ref(*to).store(value, std::memory_order_release);
}
inline uint32_t told_by_any_device(const uint32_t* from) {
  return std::atomic_ref(*const_cast<uint32_t*>(from)).load(std::memory_order_acquire);
}
template <typename T>
Packed<T, 16 / sizeof(T)> read_of_any_device(const Packed<T, 16 / sizeof(T)>* from) {
  return *from;
}
inline void wait_a_little() {
  sched_yield();
}

}  // namespace pecia::kernels::cuda
