// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The part of NCCL that this program uses: the calls of one group, on memory of the rank's GPU,
/// enqueued on a stream. end_group and split return when their work is enqueued, for which other
/// ranks may have to come. A build without CUDA has no NCCL; tests bring their own implementation.

#include <memory>
#include <span>
#include <string>

#include "lib/base/device/device.hpp"
#include "lib/ranks/comm/abortable.hpp"
#include "lib/ranks/comm/addends.hpp"
#include "lib/ranks/comm/call_watch.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/comm/one_shot.hpp"

namespace pecia::comm {

class Nccl : public Abortable {
 public:
  /// Calls between start_group and end_group start together, in no order.
  virtual void start_group() = 0;
  virtual void end_group() = 0;

  virtual void send(std::span<const std::byte> bytes, int to, device::Stream& stream) = 0;
  virtual void receive(std::span<std::byte> bytes, int from, device::Stream& stream) = 0;
  /// Copies the bytes of `root` to every rank.
  virtual void broadcast(std::span<std::byte> bytes, int root, device::Stream& stream) = 0;
  /// On `root`, `sum` becomes the sum of all ranks' values; on other ranks `sum` is ignored. `sum`
  /// and `values` may be the same memory.
  virtual void reduce(const Addends& values, const Addends& sum, int root,
                      device::Stream& stream) = 0;
  virtual void all_reduce(const Addends& values, device::Stream& stream) = 0;
  /// `all` has a block of equal size for each rank. Copies each rank's own block to all ranks.
  virtual void all_gather(std::span<std::byte> all, device::Stream& stream) = 0;
  /// `values` has a block of equal size for each rank, and `mine` becomes the sum of all ranks'
  /// values of this rank's block, which may be its memory.
  virtual void reduce_scatter(const Addends& values, const Addends& mine,
                              device::Stream& stream) = 0;

  /// Keeps memory registered while it lives, so that transfers may use the memory without a copy in
  /// between. Destroy it before the memory and the group are freed, when none of its transfers is
  /// under way.
  class Registration {
   public:
    virtual ~Registration() = default;
  };
  /// Whether register_block has an effect. The answer is the same on every rank, because NCCL wants
  /// the memory of a transfer registered on all ranks or on none.
  virtual bool registers() const = 0;
  /// Registers a whole block of device memory. Not collective; must not be called inside a group of
  /// calls.
  virtual std::unique_ptr<Registration> register_block(std::span<std::byte> block) = 0;

  /// "NCCL 2.28.9, memory of transfers registered".
  virtual std::string name() const = 0;

  /// As in Communicator::split.
  virtual std::unique_ptr<Nccl> split(int color, int key) = 0;

  /// Collective over `host`, which has the group's ranks, on one server, and outlives the sums: makes
  /// sums of up to `most_bytes` beside NCCL's. Ending them is collective, too, except while an
  /// exception is under way.
  virtual FoundOneShot find_one_shot(Communicator& host, device::Device& device,
                                     int64_t most_bytes) = 0;
};

/// Collective over `host`: makes a group of its ranks, each of which has its own GPU. Throws
/// SystemError, also when the ranks' versions of NCCL differ, and Unsupported in a build without
/// CUDA. If the other ranks do not take part within wait_timeout, `late` is told so, and is to end
/// the job.
std::unique_ptr<Nccl> make_nccl(Communicator& host, device::Device& device, CallWatch::Late late);

/// "2.28.9"; "none: this build has no CUDA".
std::string nccl_version();

}  // namespace pecia::comm
