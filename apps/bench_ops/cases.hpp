#pragma once
/// The ops at the shapes of real models, each with the work it declares.

#include <functional>
#include <string>
#include <vector>

#include "kernels/api/backend.hpp"

namespace pecia::bench {

/// One measurement. `make` allocates the inputs and returns the call to time; they live as long as
/// it.
struct Case {
  std::string op, shape;
  double flops;  ///< useful ones: causal attention counts the pairs that are seen
  double bytes;  ///< that have to be read or written at least once
  std::function<std::function<void()>(kernels::Backend&, device::Stream&)> make;
};

std::vector<Case> all_cases();

}  // namespace pecia::bench
