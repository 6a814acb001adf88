// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long each way of multiplying takes on this machine's CPUs, by the number of rows.

#include <vector>

#include "kernels/api/backend.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/work/resources/threads.hpp"

namespace pecia::measure {

/// One way of multiplying at one number of rows. Seconds of the same number of rows are of the same
/// product; those of other numbers are of other sizes.
struct ProductTime {
  kernels::MatmulKind products = kernels::MatmulKind::fp32;
  bool packed = false;  ///< else weights are read in place
  int64_t rows = 0;
  double seconds = 0;
};

/// The numbers of rows at which products are measured in place, and packed.
inline constexpr int64_t rows_in_place[] = {1, 8, 16, 32, 64, 128};
inline constexpr int64_t rows_packed[] = {16, 32, 64, 128, 512};

/// Times the products with weights of this type that no cache holds, all ways in turn, and takes the
/// best of up to five rounds. Takes at most about 0.5 s. Empty on a machine that would take far
/// longer, as an emulated one. Collective over `world`, whose ranks do the same at the same time;
/// seconds are those of the slowest rank, and every rank gets the same.
std::vector<ProductTime> measure_products(const std::vector<kernels::MatmulKind>& kinds,
                                          DType weights, const resources::Threads& threads,
                                          comm::Communicator& world);

}  // namespace pecia::measure
