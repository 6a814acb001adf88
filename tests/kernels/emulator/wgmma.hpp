// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The products of kernels/cuda/shared/wgmma.cuh on the CPU. They read shared memory by the bits of
/// their descriptors, as PTX's ISA defines them, and do their work only when they are waited for: so
/// registers or shared memory that change before are seen as changed.

#include "kernels/cuda/shared/fragments.hpp"
#include "kernels/cuda/shared/wgmma.hpp"
#include "tests/kernels/emulator/cuda.hpp"

namespace pecia::test::emulator {

/// Work of this thread, done when its group is waited for; each thread of a warp has the same.
void work_later(std::function<void()> work);
void end_work_group();
void finish_work(int groups_left);

/// What a descriptor says of a matrix in shared memory.
class DescribedMatrix {
 public:
  explicit DescribedMatrix(uint64_t descriptor)
      : start_((descriptor & 0x3fff) << 4),
        blocks_((descriptor >> 16 & 0x3fff) << 4),
        groups_((descriptor >> 32 & 0x3fff) << 4) {
    const auto swizzle = static_cast<int>(descriptor >> 62);
    if ((swizzle != 1 && swizzle != 2) || (descriptor >> 46 & 0xffff) != 0)
      ::pecia::fail<::pecia::InvalidArgument>("a matrix of descriptor {:x}", descriptor);
    row_bytes_ = swizzle == 1 ? 128 : 64;
  }
  /// Summed along columns: 16 bytes of depth are next to each other twice.
  template <typename T>
  float along_columns(int row, int depth) const {
    return at<T>(start_ + row / 8 * groups_ + row % 8 * row_bytes_ + 2 * depth);
  }
  template <typename T>
  float along_rows(int depth, int column) const {
    const int columns = row_bytes_ / 2;
    return at<T>(start_ + column / columns * blocks_ + column % columns * 2 + depth / 8 * groups_ +
                 depth % 8 * row_bytes_);
  }

 private:
  template <typename T>
  float at(uint32_t address) const {
    const uint32_t swizzled = address ^ (address >> 3 & (row_bytes_ - 16));
    return kernels::cuda::widen(*reinterpret_cast<const T*>(shared_memory_at(swizzled, sizeof(T))));
  }

  uint32_t start_, blocks_, groups_, row_bytes_;
};

/// Of an element of a warpgroup's d[64×N] that this thread has: element 0 … N/2 − 1.
inline kernels::cuda::Place wgmma_place(int element) {
  const int warp = static_cast<int>(thread_index.x) / 32 % 4;
  const auto in_warp = kernels::cuda::d_place(lane(), element % 4);
  return {16 * warp + in_warp.row, 8 * (element / 4) + in_warp.column};
}

}  // namespace pecia::test::emulator

namespace pecia::kernels::cuda {

inline uint32_t shared_address(const void* data) {
  return test::emulator::shared_address_of(data);
}

template <typename T, int N>
void wgmma_shared(float (&d)[N / 2], uint64_t a, uint64_t b, bool adds) {
  namespace emulator = test::emulator;
  emulator::work_later([to = &d[0], left = emulator::DescribedMatrix(a),
                        right = emulator::DescribedMatrix(b), adds] {
    constexpr int depth = 16;
    float rows[2][depth];
    for (int half = 0; half < 2; ++half)
      for (int k = 0; k < depth; ++k)
        rows[half][k] = left.along_columns<T>(emulator::wgmma_place(2 * half).row, k);
    for (int i = 0; i < N / 2; ++i) {
      float sum = adds ? to[i] : 0;
      for (int k = 0; k < depth; ++k)
        sum += rows[i % 4 / 2][k] * right.along_columns<T>(emulator::wgmma_place(i).column, k);
      to[i] = sum;
    }
  });
}

template <typename T, int N>
void wgmma_registers(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b) {
  namespace emulator = test::emulator;
  emulator::work_later([to = &d[0], from = &a[0], right = emulator::DescribedMatrix(b)] {
    constexpr int depth = 16;
    using Rows = float[16][depth];
    auto& rows = *static_cast<Rows*>(emulator::warp_memory());
    for (int reg = 0; reg < 4; ++reg)
      for (int half = 0; half < 2; ++half) {
        const Place place = a_place(emulator::lane(), reg);
        rows[place.row][place.column + half] = half_of<T>(from[reg], half);
      }
    emulator::warp_barrier();
    for (int i = 0; i < N / 2; ++i) {
      const Place place = emulator::wgmma_place(i);
      for (int k = 0; k < depth; ++k)
        to[i] += rows[place.row % 16][k] * right.along_rows<T>(k, place.column);
    }
    emulator::warp_barrier();
  });
}

inline void wgmma_fence() {}
inline void wgmma_commit() {
  test::emulator::end_work_group();
}
template <int Pending>
void wgmma_wait() {
  test::emulator::finish_work(Pending);
}
template <int Count>
void hold_in_place(float (&)[Count]) {}
inline void finish_first(float value) {
  if (value < 0) ::pecia::fail<::pecia::InvalidArgument>("{} is below 0", value);
}
inline void let_products_see_shared() {}

}  // namespace pecia::kernels::cuda
