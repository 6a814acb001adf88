// SPDX-License-Identifier: Apache-2.0
/// In place of cudnn_sdpa.cpp, where the build did not find the headers of cudnn-frontend.

#include "kernels/cuda/attention/sdpa.hpp"

namespace pecia::kernels::cuda {
namespace {

FoundSdpa none() {
  return {nullptr, "this build was made without cudnn-frontend (scripts/setup.sh cuda gets it)"};
}

}  // namespace

FoundSdpa find_cudnn_sdpa(device::Device&, SdpaGraphs) {
  return none();
}

FoundSdpa find_cudnn_sdpa_without_gpu(const std::string&, int, SdpaGraphs) {
  return none();
}

}  // namespace pecia::kernels::cuda
