// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The memory of a group's transfers, registered with NCCL: each block of device memory when a
/// transfer first goes from or to it, until it is freed or the group goes. So all memory that
/// travels is registered, on every rank, as NCCL wants it. What NCCL then makes of memory that
/// cudaMalloc gave is up to its transports: networks take it, GPUs of one host do not.

#include <map>
#include <memory>

#include "lib/comm/nccl.hpp"
#include "lib/device/device.hpp"

namespace pecia::comm {

class RegisteredBlocks : public device::BlockWatcher {
 public:
  /// All outlive it. `sending`: the stream of the group's transfers.
  RegisteredBlocks(Nccl& nccl, device::Device& device, device::Stream& sending);
  RegisteredBlocks(const RegisteredBlocks&) = delete;
  RegisteredBlocks& operator=(const RegisteredBlocks&) = delete;
  ~RegisteredBlocks() override;

  /// Before a group of calls: `bytes` will travel.
  void use(std::span<const std::byte> bytes);

  /// Waits for the transfers under way: they may use the block.
  void leaves(const std::byte* block) noexcept override;

 private:
  Nccl& nccl_;
  device::Device& device_;
  device::Stream& sending_;
  std::map<const std::byte*, std::unique_ptr<Nccl::Registration>> blocks_;
};

}  // namespace pecia::comm
