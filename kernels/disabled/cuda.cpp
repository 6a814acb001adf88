// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/backend.hpp"

namespace pecia::kernels {

std::unique_ptr<Backend> make_cuda_backend(device::Device&, AttentionBy, ExpertsBy) {
  fail<Unsupported>(
      "this pecia was built without CUDA; set backend: cpu (or auto) in the job file");
}

}  // namespace pecia::kernels
