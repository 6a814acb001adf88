// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Operations of NCCL that stand in a step's graphs (device/joint_ranks.hpp).

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/base/device/joint_ranks.hpp"
#include "lib/ranks/comm/nccl_queue.hpp"

namespace pecia::comm {

/// The ranks of a group whose works stand in a step's graphs. They are enqueued on the computing stream
/// itself: a step's rows are one block, so little could be computed beside them.
class NcclStepRanks : public device::JointRanks {
 public:
  using Memory = std::vector<std::span<const std::byte>>;

  /// `host` has the ranks of the queue's group, and outlives this object. As ranks may agree at
  /// different works of a step, no other collective of `host` may be called within a step.
  NcclStepRanks(std::shared_ptr<NcclQueue> queue, Communicator& host)
      : queue_(std::move(queue)), host_(host) {}
  NcclStepRanks(const NcclStepRanks&) = delete;
  NcclStepRanks& operator=(const NcclStepRanks&) = delete;
  /// NCCL's groups do not end while there are graphs with their operations.
  ~NcclStepRanks() override {
    try {
      queue_->computing().drop_joint_graphs();
    } catch (const Error&) {
      // The device is lost, and its graphs with it.
    }
  }

  /// The group of calls `calls`, which follow from `words` and `memory`. The words are the same on
  /// every rank. Null if the computing stream does not hold them back, so that they have to be
  /// started like any other transfer.
  template <typename Calls>
  std::unique_ptr<Transfer> start(const char* operation, std::string words, Memory memory,
                                  Calls calls) {
    if (queue_->size() == 1) return nullptr;
    queue_->poll();
    const int64_t number = queue_->number() + 1;
    if (pending_ == 0) {
      operation_ = operation;
      first_ = number;
      launch_ = std::make_shared<Launch>();
    }
    ++pending_;
    auto transfer = std::make_unique<InStep>(launch_);
    const auto enqueue = [this, operation, number, calls = std::move(calls)] {
      const CallWatch::Call call = queue_->watch().calls().begin(operation, number, peers_);
      queue_->nccl().start_group();
      calls(queue_->nccl(), queue_->computing());
      queue_->nccl().end_group();
    };
    if (!queue_->computing().hold_back(*this, {std::move(words), memory, enqueue})) {
      --pending_;
      return nullptr;
    }
    queue_->held_back(number, memory);
    return transfer;
  }

  void watch_launch(const std::function<void()>& launch) override {
    const CallWatch::Call call = queue_->watch().calls().begin(operation_, first_, peers_);
    launch();
  }
  void enqueued() override {
    launch_->done = queue_->watch().event(queue_->device());
    launch_->done->record(queue_->computing());
    queue_->watch().add(
        {operation_, first_,
         pending_ == 1 ? peers_ : fmt::format("{}, and {} more", peers_, pending_ - 1),
         launch_->done, NcclWatch::Clock::now()});
    pending_ = 0;
  }

 private:
  /// What is enqueued together. `done` is null before that.
  struct Launch {
    std::shared_ptr<device::Event> done;
  };
  class InStep : public Transfer {
   public:
    explicit InStep(std::shared_ptr<const Launch> launch) : launch_(std::move(launch)) {}
    bool test() override { return launch_->done != nullptr && launch_->done->done(); }
    void wait() override {}  // work that is given to the stream from now on follows the transfer
    bool is_held_back() const override { return true; }

   private:
    std::shared_ptr<const Launch> launch_;
  };

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    return host_.all_gather(mine);
  }

  std::shared_ptr<NcclQueue> queue_;
  Communicator& host_;
  const std::string peers_ = "all ranks";
  std::shared_ptr<Launch> launch_;
  const char* operation_ = "";       ///< the first of those since the last launch
  int64_t first_ = 0, pending_ = 0;  ///< its number, and how many these are
};

}  // namespace pecia::comm
