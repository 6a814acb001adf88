// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Enqueues the operations of a group of NCCL on a stream of their own, and counts what they send.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/comm/nccl.hpp"
#include "lib/ranks/comm/nccl_watch.hpp"
#include "lib/ranks/comm/registered_blocks.hpp"
#include "lib/ranks/comm/traffic_meter.hpp"

namespace pecia::comm {

/// A part of a group for some of its calls only, and the blocks registered with it.
struct NcclPart {
  NcclPart(std::unique_ptr<Nccl> group, device::Device& device, device::Stream& computing,
           device::Stream& sending)
      : nccl(std::move(group)), registered(*nccl, device, computing, sending) {}

  std::unique_ptr<Nccl> nccl;
  RegisteredBlocks registered;
};

/// Enqueues the operations of a group and its collectives.
class NcclQueue {
 public:
  NcclQueue(std::unique_ptr<Nccl> nccl, device::Device& device, device::Stream& computing,
            std::shared_ptr<device::Stream> sending, std::shared_ptr<NcclWatch> watch, int rank,
            int size)
      : nccl_(std::move(nccl)),
        device_(device),
        computing_(computing),
        sending_(std::move(sending)),
        watch_(std::move(watch)),
        registered_(*nccl_, device, computing_, *sending_),
        ready_(device.make_event()),
        rank_(rank),
        size_(size),
        traffic_(rank, size) {
    watch_->add(*nccl_);
  }
  NcclQueue(const NcclQueue&) = delete;
  NcclQueue& operator=(const NcclQueue&) = delete;
  ~NcclQueue() { watch_->remove(*nccl_); }

  int rank() const { return rank_; }
  int size() const { return size_; }

  std::string nccl_name() const { return nccl_->name(); }

  /// Call before start: `bytes` belong to the operation.
  void use(std::span<const std::byte> bytes) { registered_.use(bytes); }

  template <typename Calls>
  std::unique_ptr<Transfer> start(const char* operation, std::string peers, const Calls& calls) {
    return start_groups(operation, std::move(peers), [&](device::Stream& stream) {
      nccl_->start_group();
      calls(*nccl_, stream);
      nccl_->end_group();
    });
  }
  /// Does the same, but the caller groups the NCCL calls.
  template <typename Groups>
  std::unique_ptr<Transfer> start_groups(const char* operation, std::string peers,
                                         const Groups& groups) {
    watch_->poll();
    ready_->record(computing_);
    ready_->make_wait(*sending_);
    ++number_;
    {
      const CallWatch::Call call = watch_->calls().begin(operation, number_, peers);
      groups(*sending_);
    }
    std::shared_ptr<device::Event> done = watch_->event(device_);
    done->record(*sending_);
    watch_->add({operation, number_, std::move(peers), done, NcclWatch::Clock::now()});
    return std::make_unique<OnStream>(std::move(done), computing_);
  }

  /// The number of the operation that is started last.
  int64_t number() const { return number_; }
  /// An operation of that number on this memory is held back by the computing stream (NcclStepRanks).
  void held_back(int64_t number, const std::vector<std::span<const std::byte>>& memory) {
    number_ = number;
    for (const auto& bytes : memory) registered_.put_in_graph(bytes);
  }
  NcclWatch& watch() const { return *watch_; }
  Nccl& nccl() const { return *nccl_; }

  /// Copies after the work that the computing stream holds, like any transfer.
  void copy(std::span<const std::byte> from, std::span<std::byte> to) {
    PECIA_CHECK(from.size() == to.size(), "a rank's block for itself: {} and {} bytes", from.size(),
                to.size());
    if (from.empty()) return;
    device_.copy(to.data(), from.data(), static_cast<int64_t>(from.size()), computing_);
  }

  void count(size_t bytes, int to) { traffic_.count(static_cast<int64_t>(bytes), to); }
  void count_to_all(size_t bytes) {
    for (int to = 0; to < size_; ++to) count(bytes, to);
  }
  void set_places(const std::vector<RackServerGpu>& by_rank) { traffic_.set_places(by_rank); }
  const Traffic& traffic() const { return traffic_.traffic(); }

  bool poll() { return watch_->poll(); }
  device::Device& device() const { return device_; }
  device::Stream& computing() const { return computing_; }
  /// Makes a part that is watched like the group itself.
  std::unique_ptr<NcclPart> split_part(int color, int key) const {
    auto part = std::make_unique<NcclPart>(split_nccl(color, key), device_, computing_, *sending_);
    watch_->add(*part->nccl);
    return part;
  }
  void give_back(NcclPart& part) const { watch_->remove(*part.nccl); }
  std::shared_ptr<NcclQueue> split(int color, int key, int rank, int size) const {
    return std::make_shared<NcclQueue>(split_nccl(color, key), device_, computing_, sending_,
                                       watch_, rank, size);
  }

 private:
  std::unique_ptr<Nccl> split_nccl(int color, int key) const {
    const std::string peers = "all ranks";
    const CallWatch::Call call = watch_->calls().begin("split", 1, peers);
    return nccl_->split(color, key);
  }

  class OnStream : public Transfer {
   public:
    OnStream(std::shared_ptr<device::Event> done, device::Stream& computing)
        : done_(std::move(done)), computing_(computing) {}
    bool test() override { return done_->done(); }
    void wait() override { done_->make_wait(computing_); }

   private:
    std::shared_ptr<device::Event> done_;
    device::Stream& computing_;
  };

  std::unique_ptr<Nccl> nccl_;
  device::Device& device_;
  device::Stream& computing_;
  std::shared_ptr<device::Stream> sending_;
  std::shared_ptr<NcclWatch> watch_;
  RegisteredBlocks registered_;
  std::unique_ptr<device::Event> ready_;
  int rank_, size_;
  int64_t number_ = 0;
  TrafficMeter traffic_;
};

}  // namespace pecia::comm
