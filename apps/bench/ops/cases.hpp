// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The ops at the shapes of real models, each with the work it declares.

#include <functional>
#include <string>
#include <vector>

#include "kernels/api/backend.hpp"

namespace pecia::bench::ops {

/// The device and backend for the ops. Both outlive the cases made there.
struct Place {
  kernels::Backend& backend;
  device::Device& device;
  device::Stream& stream;
};

/// One measurement. `make` allocates the inputs and returns the call to time; the inputs live as
/// long as the call.
struct Case {
  std::string op, shape;
  double flops;  ///< useful FLOPs: causal attention counts visible pairs
  double bytes;  ///< bytes to be read or written at least once
  std::function<std::function<void()>(const Place&)> make;
  bool row_invariant = false;  ///< of `reproducible: layout` alone
};

/// Cases for a CPU, which takes milliseconds to seconds for each.
std::vector<Case> all_cases();

/// The product that is the floor for a CPU's products of bf16.
Case square_product();

/// Cases for a GPU: prefill of 8192 rows, attention of up to 131072, decode of long contexts. Prefills
/// have queries and results of attention in bf16, as passes of many rows do.
std::vector<Case> large_cases();

}  // namespace pecia::bench::ops
