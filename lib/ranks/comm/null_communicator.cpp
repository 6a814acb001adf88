// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::comm {
namespace {

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  PECIA_CHECK(from.size() == to.size(), "{} bytes sent, {} expected", from.size(), to.size());
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

class NullCommunicator : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  std::unique_ptr<Transfer> start_send_receive(std::span<const std::byte> send, int to,
                                               std::span<std::byte> receive, int from) override {
    PECIA_CHECK(to == 0 && from == 0, "ranks {} and {} of 1", to, from);
    copy(send, receive);
    return std::make_unique<DoneTransfer>();
  }
  std::unique_ptr<Transfer> start_all_to_all(const Blocks& blocks) override {
    PECIA_CHECK(blocks.send.size() == 1 && blocks.receive.size() == 1, "one block for one rank");
    copy(blocks.send[0], blocks.receive[0]);
    return std::make_unique<DoneTransfer>();
  }
  int64_t next_operation() override { return ++operation_; }
  void enter_team(uint64_t, int64_t) override {}
  void check_same(const char*, int64_t) override {}
  void show_wait(const Operation*) override {}
  std::unique_ptr<Transfer> start_exchange(const Exchange& exchange,
                                           const Operation& operation) override {
    PECIA_CHECK(exchange.sends.empty() && exchange.receives.empty(),
                "{} #{} exchanges with {}, but there is one rank", operation.name, operation.number,
                exchange.peers());
    return std::make_unique<DoneTransfer>();
  }
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    return {{mine.begin(), mine.end()}};
  }
  void broadcast(std::vector<std::byte>&, int root) override {
    PECIA_CHECK(root == 0, "rank {} of 1", root);
  }
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine, int root) override {
    PECIA_CHECK(root == 0, "rank {} of 1", root);
    return all_gather(mine);
  }
  int64_t all_reduce_max(int64_t value) override { return value; }
  double all_reduce_sum(double value) override { return value; }
  void barrier() override {}
  std::unique_ptr<Communicator> split(int, int) override { return make_null_communicator(); }
  std::unique_ptr<Communicator> split_by_host() override { return make_null_communicator(); }
  std::unique_ptr<SharedCounters> make_counters(int64_t count) override {
    struct Counters : SharedCounters {
      explicit Counters(int64_t size) : sums(size) {}
      int64_t add(int64_t index, int64_t amount) override {
        PECIA_CHECK(0 <= index && index < static_cast<int64_t>(sums.size()), "counter {} of {}",
                    index, sums.size());
        return std::exchange(sums[index], sums[index] + amount);
      }
      std::vector<int64_t> sums;
    };
    return std::make_unique<Counters>(count);
  }
  bool progress() override { return false; }
  std::chrono::seconds wait_timeout() const override { return std::chrono::seconds::zero(); }
  void set_wait_timeout(std::chrono::seconds) override {}
  void set_places(const std::vector<RackServerGpu>& by_rank) override {
    PECIA_CHECK(by_rank.size() == 1, "{} places for one rank", by_rank.size());
  }
  Traffic traffic() const override { return {}; }

 private:
  int64_t operation_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_null_communicator() {
  return std::make_unique<NullCommunicator>();
}

}  // namespace pecia::comm
