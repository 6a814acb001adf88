// SPDX-License-Identifier: Apache-2.0
/// Replaces nccl_cuda.cpp and one_shot_cuda.cpp in a build without CUDA.

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/nccl.hpp"

namespace pecia::comm {

std::unique_ptr<Nccl> make_nccl(Communicator&, device::Device&, CallWatch::Late) {
  fail<Unsupported>("NCCL: this pecia was built without CUDA");
}

FoundOneShot map_one_shot(Communicator&, device::Device&, int64_t) {
  return {nullptr, "this pecia was built without CUDA"};
}

std::string nccl_version() {
  return "none: this build has no CUDA";
}

}  // namespace pecia::comm
