// SPDX-License-Identifier: Apache-2.0
#pragma once
/// NCCL as far as it is used: the calls of one group, on memory of the rank's GPU, enqueued on a
/// stream. A build without CUDA has none; tests have their own.

#include <memory>
#include <span>
#include <string>

#include "lib/comm/communicator.hpp"
#include "lib/device/device.hpp"

namespace pecia::comm {

class Nccl {
 public:
  virtual ~Nccl() = default;

  /// What is between the two starts together, in no order.
  virtual void start_group() = 0;
  virtual void end_group() = 0;

  virtual void send(std::span<const std::byte> bytes, int to, device::Stream& stream) = 0;
  virtual void receive(std::span<std::byte> bytes, int from, device::Stream& stream) = 0;
  /// `root`'s bytes are everybody's.
  virtual void broadcast(std::span<std::byte> bytes, int root, device::Stream& stream) = 0;
  /// `sum`, which is read on `root` alone, becomes the sum of all ranks' values; the two may be
  /// one.
  virtual void reduce(std::span<const float> values, std::span<float> sum, int root,
                      device::Stream& stream) = 0;
  virtual void all_reduce(std::span<float> values, device::Stream& stream) = 0;

  /// Memory from and to which transfers may go without a copy between, while this lives. It goes
  /// before the memory and before the group, when no transfer of it is under way.
  class Registration {
   public:
    virtual ~Registration() = default;
  };
  /// Whether register_block does anything: the same on every rank, as in a transfer NCCL wants the
  /// memory of all ranks registered, or that of none.
  virtual bool registers() const = 0;
  /// A block of device memory, whole. Not collective, not in a group of calls.
  virtual std::unique_ptr<Registration> register_block(std::span<std::byte> block) = 0;

  /// "NCCL 2.28.9, memory of transfers registered".
  virtual std::string name() const = 0;

  /// As Communicator::split.
  virtual std::unique_ptr<Nccl> split(int color, int key) = 0;

  /// What has gone wrong in what was started, or with another rank; "": nothing. Never blocks.
  virtual std::string asynchronous_error() = 0;
  /// Ends what is under way, whatever it waits for. Nothing more can be started.
  virtual void abort() noexcept = 0;
};

/// Of `host`'s ranks, each with a GPU of its own. Collective over `host`. Throws SystemError, also
/// where the ranks' versions of NCCL differ; Unsupported in a build without CUDA.
std::unique_ptr<Nccl> make_nccl(Communicator& host, device::Device& device);

/// "2.28.9"; "none: this build has no CUDA".
std::string nccl_version();

}  // namespace pecia::comm
