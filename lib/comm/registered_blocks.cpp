// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/registered_blocks.hpp"

#include "lib/core/error.hpp"

namespace pecia::comm {

RegisteredBlocks::RegisteredBlocks(Nccl& nccl, device::Device& device, device::Stream& sending)
    : nccl_(nccl), device_(device), sending_(sending) {
  device_.blocks().add_watcher(*this);
}

RegisteredBlocks::~RegisteredBlocks() {
  device_.blocks().remove_watcher(*this);
}

void RegisteredBlocks::use(std::span<const std::byte> bytes) {
  if (bytes.empty() || !nccl_.registers()) return;
  const auto block = device_.blocks().around(bytes);
  if (block.empty() || blocks_.contains(block.data())) return;
  blocks_[block.data()] = nccl_.register_block(block);
}

void RegisteredBlocks::leaves(const std::byte* block) noexcept {
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return;
  try {
    sending_.synchronize();
  } catch (const Error&) {
    // Nothing is under way any more. The next call that may throw will report the error.
  }
  blocks_.erase(found);
}

}  // namespace pecia::comm
