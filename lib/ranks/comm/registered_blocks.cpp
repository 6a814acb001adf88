// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/registered_blocks.hpp"

#include "lib/base/core/error.hpp"

namespace pecia::comm {

RegisteredBlocks::RegisteredBlocks(Nccl& nccl, device::Device& device, device::Stream& computing,
                                   device::Stream& sending)
    : nccl_(nccl), device_(device), computing_(computing), sending_(sending) {
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

void RegisteredBlocks::put_in_graph(std::span<const std::byte> bytes) {
  if (const auto block = device_.blocks().around(bytes); !block.empty())
    in_graphs_.insert(block.data());
}

void RegisteredBlocks::leaves(const std::byte* block) noexcept {
  const bool in_graphs = in_graphs_.erase(block) > 0;
  const auto registered = blocks_.find(block);
  try {
    if (in_graphs) {
      computing_.synchronize();  // what it holds back is enqueued first
      computing_.drop_joint_graphs();
    }
    if (registered != blocks_.end()) sending_.synchronize();
  } catch (const Error&) {
    // Nothing is under way any more. The next call that may throw will report the error.
  }
  if (registered != blocks_.end()) blocks_.erase(registered);
}

}  // namespace pecia::comm
