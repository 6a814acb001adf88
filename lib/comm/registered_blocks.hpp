// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Registers the memory of a group's transfers with NCCL. A block of device memory is registered
/// when a transfer first uses it, and stays so until the block is freed or the group ends. So all
/// memory that travels is registered on every rank, as NCCL requires. Whether NCCL's transports use
/// registered memory from cudaMalloc varies: networks do, GPUs of one host do not.

#include <map>
#include <memory>

#include "lib/comm/nccl.hpp"
#include "lib/device/device.hpp"

namespace pecia::comm {

class RegisteredBlocks : public device::BlockWatcher {
 public:
  /// All arguments outlive this object. `sending` is the stream of the group's transfers.
  RegisteredBlocks(Nccl& nccl, device::Device& device, device::Stream& sending);
  RegisteredBlocks(const RegisteredBlocks&) = delete;
  RegisteredBlocks& operator=(const RegisteredBlocks&) = delete;
  ~RegisteredBlocks() override;

  /// Registers the block of `bytes`. Call it before the group of calls that transfers them.
  void use(std::span<const std::byte> bytes);

  /// Waits for the transfers under way, because they may use the block.
  void leaves(const std::byte* block) noexcept override;

 private:
  Nccl& nccl_;
  device::Device& device_;
  device::Stream& sending_;
  std::map<const std::byte*, std::unique_ptr<Nccl::Registration>> blocks_;
};

}  // namespace pecia::comm
