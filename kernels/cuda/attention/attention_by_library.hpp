// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "kernels/cuda/cuda.hpp"

namespace pecia::kernels::cuda {

/// Computes the items that are large rectangles (attention_rectangles.hpp) by the context's
/// library, if there is one. The library must take all of an item's rectangles. Returns the items
/// that are left to other kernels.
std::vector<AttentionItem> attention_by_library(const AttentionArgs& args, Context& context,
                                                device::Stream& stream);

}  // namespace pecia::kernels::cuda
