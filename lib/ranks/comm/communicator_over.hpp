// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A communicator that is built on another one and changes some of its operations.

#include <utility>

#include "lib/ranks/comm/communicator.hpp"

namespace pecia::comm {

/// Passes every operation that is not overridden to the inner communicator.
class CommunicatorOver : public Communicator {
 public:
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<Transfer> start_send_receive(std::span<const std::byte> send, int to,
                                               std::span<std::byte> receive, int from) override {
    return inner_->start_send_receive(send, to, receive, from);
  }
  std::unique_ptr<Transfer> start_all_to_all(const Blocks& blocks) override {
    return inner_->start_all_to_all(blocks);
  }
  int64_t next_operation() override { return inner_->next_operation(); }
  void enter_team(uint64_t team, int64_t after) override { inner_->enter_team(team, after); }
  void check_same(const char* operation, int64_t shape) override {
    inner_->check_same(operation, shape);
  }
  void show_wait(const Operation* operation) override { inner_->show_wait(operation); }
  std::unique_ptr<Transfer> start_exchange(const Exchange& exchange,
                                           const Operation& operation) override {
    return inner_->start_exchange(exchange, operation);
  }
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    return inner_->all_gather(mine);
  }
  void broadcast(std::vector<std::byte>& bytes, int root) override {
    inner_->broadcast(bytes, root);
  }
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine, int root) override {
    return inner_->gather(mine, root);
  }
  int64_t all_reduce_max(int64_t value) override { return inner_->all_reduce_max(value); }
  double all_reduce_sum(double value) override { return inner_->all_reduce_sum(value); }
  void barrier() override { inner_->barrier(); }
  std::unique_ptr<SharedCounters> make_counters(int64_t count) override {
    return inner_->make_counters(count);
  }
  bool progress() override { return inner_->progress(); }
  std::chrono::seconds wait_timeout() const override { return inner_->wait_timeout(); }
  void set_wait_timeout(std::chrono::seconds timeout) override {
    inner_->set_wait_timeout(timeout);
  }
  void set_places(const std::vector<RackServerGpu>& by_rank) override {
    inner_->set_places(by_rank);
  }
  Traffic traffic() const override { return inner_->traffic(); }

 protected:
  explicit CommunicatorOver(std::unique_ptr<Communicator> inner)
      : owned_(std::move(inner)), inner_(owned_.get()) {}
  /// `inner` must outlive this object.
  explicit CommunicatorOver(Communicator& inner) : inner_(&inner) {}

  Communicator& inner() const { return *inner_; }

 private:
  std::unique_ptr<Communicator> owned_;
  Communicator* inner_;
};

}  // namespace pecia::comm
