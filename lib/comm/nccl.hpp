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
