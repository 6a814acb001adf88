// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/phantom.hpp"

#include <algorithm>
#include <utility>

#include "lib/comm/host_collectives.hpp"
#include "lib/comm/traffic_meter.hpp"
#include "lib/core/error.hpp"

namespace pecia::comm {
namespace {

class PhantomCommunicator : public Communicator {
 public:
  PhantomCommunicator(int rank, int size, OnMessage on_message)
      : rank_(rank), size_(size), on_message_(std::move(on_message)), traffic_(rank, size) {
    PECIA_CHECK(0 <= rank && rank < size, "rank {} of {}", rank, size);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Transfer> start_send_receive(std::span<const std::byte> send, int to,
                                               std::span<std::byte>, int) override {
    count(send, to);
    return std::make_unique<DoneTransfer>();
  }
  std::unique_ptr<Transfer> start_all_to_all(const Blocks& blocks) override {
    PECIA_CHECK(blocks.send.size() == static_cast<size_t>(size_) &&
                    blocks.receive.size() == static_cast<size_t>(size_),
                "{} and {} blocks for {} ranks", blocks.send.size(), blocks.receive.size(), size_);
    for (int to = 0; to < size_; ++to) count(blocks.send[to], to);
    return std::make_unique<DoneTransfer>();
  }
  int64_t next_operation() override { return ++operations_; }
  void enter_team(uint64_t, int64_t) override {}
  void check_same(const char*, int64_t) override {}
  void show_wait(const Operation*) override {}
  std::unique_ptr<Transfer> start_exchange(const Exchange& exchange, const Operation&) override {
    for (const auto& [bytes, to] : exchange.sends) {
      PECIA_CHECK(0 <= to && to < size_ && to != rank_, "rank {} of {} sends to rank {}", rank_,
                  size_, to);
      count(bytes, to);
    }
    return std::make_unique<DoneTransfer>();
  }
  std::unique_ptr<Collectives> make_collectives(std::vector<int> server_of_rank,
                                                SumOrder) override {
    return std::make_unique<HostCollectives>(*this, std::move(server_of_rank), Sums::left_out);
  }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    return std::vector<std::vector<std::byte>>(size_, {mine.begin(), mine.end()});
  }
  void broadcast(std::vector<std::byte>&, int) override {}
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine, int root) override {
    return root == rank_ ? all_gather(mine) : std::vector<std::vector<std::byte>>();
  }
  int64_t all_reduce_max(int64_t value) override { return value; }
  double all_reduce_sum(double value) override { return value * size_; }
  void barrier() override {}

  std::unique_ptr<Communicator> part(const std::vector<int>& ranks) override {
    const auto own = std::find(ranks.begin(), ranks.end(), rank_);
    PECIA_CHECK(own != ranks.end(), "rank {} is not in its own part", rank_);
    return std::make_unique<PhantomCommunicator>(static_cast<int>(own - ranks.begin()),
                                                 static_cast<int>(ranks.size()), on_message_);
  }
  std::unique_ptr<Communicator> split(int, int) override {
    fail<Unsupported>("a phantom does not know what other ranks would say to a split");
  }
  std::unique_ptr<Communicator> split_by_host() override {
    fail<Unsupported>("a phantom has no hosts");
  }
  std::unique_ptr<SharedCounters> make_counters(int64_t) override {
    fail<Unsupported>("a phantom has nobody to share counters with");
  }

  bool progress() override { return false; }
  std::chrono::seconds wait_timeout() const override { return std::chrono::seconds::zero(); }
  void set_wait_timeout(std::chrono::seconds) override {}
  void set_places(const std::vector<RackServerGpu>& by_rank) override {
    traffic_.set_places(by_rank);
  }
  Traffic traffic() const override { return traffic_.traffic(); }

 private:
  void count(std::span<const std::byte> sent, int to) {
    const auto bytes = static_cast<int64_t>(sent.size());
    traffic_.count(bytes, to);
    if (on_message_ && bytes > 0 && to != rank_) on_message_(bytes);
  }

  int rank_, size_;
  OnMessage on_message_;
  int64_t operations_ = 0;
  TrafficMeter traffic_;
};

}  // namespace

std::unique_ptr<Communicator> make_phantom_communicator(int rank, int size, OnMessage on_message) {
  return std::make_unique<PhantomCommunicator>(rank, size, std::move(on_message));
}

}  // namespace pecia::comm
