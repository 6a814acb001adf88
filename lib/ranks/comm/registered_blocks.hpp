// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Registers the memory of a group's transfers with NCCL. A block of device memory is registered
/// when a transfer first uses it, and stays so until the block is freed or the group ends. So all
/// memory that travels is registered on every rank, as NCCL requires. Whether NCCL's transports use
/// registered memory from cudaMalloc varies: networks do, GPUs of one host do not.

#include <map>
#include <memory>
#include <set>

#include "lib/base/device/device.hpp"
#include "lib/ranks/comm/nccl.hpp"

namespace pecia::comm {

class RegisteredBlocks : public device::BlockWatcher {
 public:
  /// All arguments outlive this object. `sending` is the stream of the group's transfers, and
  /// `computing` the one whose graphs may have operations of the group.
  RegisteredBlocks(Nccl& nccl, device::Device& device, device::Stream& computing,
                   device::Stream& sending);
  RegisteredBlocks(const RegisteredBlocks&) = delete;
  RegisteredBlocks& operator=(const RegisteredBlocks&) = delete;
  ~RegisteredBlocks() override;

  /// Registers the block of `bytes`. Call it before the group of calls that transfers them.
  void use(std::span<const std::byte> bytes);

  /// The block of `bytes` may be named by a graph of the computing stream from now on.
  void put_in_graph(std::span<const std::byte> bytes);

  /// Waits for the transfers under way, because they may use the block, and lets go of graphs that
  /// name it. Where the computing stream holds back work of several ranks, this waits for them.
  void leaves(const std::byte* block) noexcept override;

 private:
  Nccl& nccl_;
  device::Device& device_;
  device::Stream &computing_, &sending_;
  std::map<const std::byte*, std::unique_ptr<Nccl::Registration>> blocks_;
  std::set<const std::byte*> in_graphs_;  ///< blocks, also where NCCL registers none
};

}  // namespace pecia::comm
