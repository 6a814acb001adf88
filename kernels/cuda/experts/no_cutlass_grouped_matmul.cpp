// SPDX-License-Identifier: Apache-2.0
/// In place of cutlass_grouped_matmul.cu, where the build is not for compute capability 9.0 or did
/// not find the headers of CUTLASS.

#include "kernels/cuda/experts/grouped_matmul.hpp"

namespace pecia::kernels::cuda {

FoundGroupedMatmul find_cutlass_grouped_matmul(device::Device&) {
  return {nullptr,
          "this build has no code of CUTLASS, which takes its headers (scripts/setup.sh cuda gets "
          "them) and the architecture 90a"};
}

}  // namespace pecia::kernels::cuda
