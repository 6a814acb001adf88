// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The ops at the shapes of real models, each with the work it declares.

#include <functional>
#include <string>
#include <vector>

#include "kernels/api/backend.hpp"

namespace pecia::bench {

/// Where ops run. What is named outlives the cases made there.
struct Place {
  kernels::Backend& backend;
  device::Device& device;
  device::Stream& stream;
};

/// One measurement. `make` allocates the inputs and returns the call to time; they live as long as
/// it.
struct Case {
  std::string op, shape;
  double flops;  ///< useful ones: causal attention counts the pairs that are seen
  double bytes;  ///< that have to be read or written at least once
  std::function<std::function<void()>(const Place&)> make;
};

/// For a CPU, which takes milliseconds to seconds for each.
std::vector<Case> all_cases();

/// The product that a CPU's products of bf16 are held against.
Case square_product();

/// The product that a GPU is held against.
Case floor_product();

/// For a GPU: prefill of 8192 rows, attention of up to 131072, decode of long contexts.
std::vector<Case> large_cases();

}  // namespace pecia::bench
