// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Element-wise work on stored weights: conversion between float types, and the search for values
/// that are not finite.

#include <cstdint>
#include <optional>

#include "lib/base/core/tensor_view.hpp"
#include "lib/base/device/thread_pool.hpp"

namespace pecia::model {

/// to[i] = from[i], rounded to nearest even, on the pool's threads. The types are fp32, bf16 or
/// fp16. Both tensors have the same number of elements. `to` is dense; rows of `from` may be
/// strided.
void convert(const TensorView& from, const TensorView& to, device::ThreadPool& pool);

/// The first of elements [begin, end) of a dense tensor (fp32, bf16, fp16 or fp8) that is NaN
/// or infinite. Uses the pool's threads.
std::optional<int64_t> first_not_finite(const TensorView& tensor, int64_t begin, int64_t end,
                                        device::ThreadPool& pool);

}  // namespace pecia::model
