// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/attention_wgmma.hpp"
#include "lib/base/device/graph_stream.hpp"

namespace pecia::kernels::cuda {

FoundWgmmaAttention find_wgmma_attention(device::Device& device) {
#ifdef PECIA_HAS_WGMMA
  if (!device::is_switched_on(wgmma_switch, "attention by wgmma"))
    return {nullptr, fmt::format("{}=0", wgmma_switch)};
  const int capability = device.info().compute_capability;
  if (capability != 90)
    return {nullptr, fmt::format("it is for compute capability 9.0, and this GPU has {}.{}",
                                 capability / 10, capability % 10)};
  return {attend_by_wgmma, ""};
#else
  static_cast<void>(device);
  return {nullptr,
          "this build has no code of it, which takes the headers of CUTLASS (scripts/setup.sh cuda "
          "gets them) and the architecture 90a"};
#endif
}

}  // namespace pecia::kernels::cuda
