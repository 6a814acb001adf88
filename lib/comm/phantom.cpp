// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/phantom.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "lib/comm/collective_steps.hpp"
#include "lib/comm/host_collectives.hpp"
#include "lib/core/error.hpp"

namespace pecia::comm {
namespace {

struct Done : Transfer {
  bool test() override { return true; }
  void wait() override {}
};

/// Runs the exchanges of a collective one after the other.
class PhantomCollectives : public Collectives {
 public:
  PhantomCollectives(Communicator& group, std::vector<int> server_of_rank)
      : group_(group), servers_(labels_to_use(group, std::move(server_of_rank))) {}

  Route route() const override {
    return servers_.num_servers() == servers_.num_ranks() ? Route::flat : Route::hierarchical;
  }
  std::unique_ptr<Transfer> start_all_gather(std::vector<std::span<std::byte>> blocks) override {
    return run("all_gather", all_gather_steps(servers_, group_.rank(), std::move(blocks)));
  }
  std::unique_ptr<Transfer> start_reduce_scatter(std::span<const float> partial,
                                                 std::span<const int64_t> counts,
                                                 std::span<float> mine) override {
    return run("reduce_scatter", reduce_scatter(partial, counts, mine));
  }
  std::unique_ptr<Transfer> start_all_reduce(std::span<float> values) override {
    const auto counts = equal_cuts(static_cast<int64_t>(values.size()), group_.size());
    std::vector<std::span<float>> cuts;
    std::vector<std::span<std::byte>> blocks;
    for (int64_t offset = 0; const int64_t count : counts) {
      cuts.push_back(values.subspan(offset, count));
      blocks.push_back(std::as_writable_bytes(cuts.back()));
      offset += count;
    }
    auto steps = reduce_scatter(values, counts, cuts[group_.rank()]);
    for (Step& step : all_gather_steps(servers_, group_.rank(), std::move(blocks)))
      steps.push_back(std::move(step));
    return run("all_reduce", steps);
  }
  void progress() override {}

 private:
  /// Received data needs an address, but nothing touches it.
  std::vector<Step> reduce_scatter(std::span<const float> partial, std::span<const int64_t> counts,
                                   std::span<float> mine) const {
    const auto floats =
        static_cast<size_t>(reduce_scatter_scratch(servers_, group_.rank(), counts));
    static float nowhere;
    return reduce_scatter_steps(servers_, group_.rank(), partial, counts, mine,
                                std::span(&nowhere, floats), Sums::left_out);
  }
  std::unique_ptr<Transfer> run(const char* name, const std::vector<Step>& steps) {
    const Operation operation{name, group_.next_operation()};
    for (const Step& step : steps) group_.start_exchange(step(), operation);
    return std::make_unique<Done>();
  }

  Communicator& group_;
  ServerMap servers_;
};

class PhantomCommunicator : public Communicator {
 public:
  PhantomCommunicator(int rank, int size, OnMessage on_message)
      : rank_(rank), size_(size), on_message_(std::move(on_message)) {
    PECIA_CHECK(0 <= rank && rank < size, "rank {} of {}", rank, size);
    level_of_rank_.resize(size, LinkLevel::server);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Transfer> start_send_receive(std::span<const std::byte> send, int to,
                                               std::span<std::byte>, int) override {
    if (to != rank_) count(send, to);
    return std::make_unique<Done>();
  }
  std::unique_ptr<Transfer> start_all_to_all(const Blocks& blocks) override {
    PECIA_CHECK(blocks.send.size() == static_cast<size_t>(size_) &&
                    blocks.receive.size() == static_cast<size_t>(size_),
                "{} and {} blocks for {} ranks", blocks.send.size(), blocks.receive.size(), size_);
    for (int to = 0; to < size_; ++to)
      if (to != rank_) count(blocks.send[to], to);
    return std::make_unique<Done>();
  }
  int64_t next_operation() override { return ++operations_; }
  void check_same(const char*, int64_t) override {}
  void show_wait(const Operation*) override {}
  std::unique_ptr<Transfer> start_exchange(const Exchange& exchange, const Operation&) override {
    for (const auto& [bytes, to] : exchange.sends) {
      PECIA_CHECK(0 <= to && to < size_ && to != rank_, "rank {} of {} sends to rank {}", rank_,
                  size_, to);
      count(bytes, to);
    }
    return std::make_unique<Done>();
  }
  std::unique_ptr<Collectives> make_collectives(std::vector<int> server_of_rank,
                                                SumOrder) override {
    return std::make_unique<PhantomCollectives>(*this, std::move(server_of_rank));
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
    PECIA_CHECK(by_rank.size() == static_cast<size_t>(size_), "{} places for {} ranks",
                by_rank.size(), size_);
    for (int rank = 0; rank < size_; ++rank)
      level_of_rank_[rank] = link_level(by_rank[rank_], by_rank[rank]);
  }
  Traffic traffic() const override { return traffic_; }

 private:
  void count(std::span<const std::byte> sent, int to) {
    if (sent.empty()) return;
    const auto bytes = static_cast<int64_t>(sent.size());
    const LinkLevel level_of_link = level_of_rank_.at(to);
    const auto level = static_cast<size_t>(level_of_link);
    ++traffic_.messages, ++traffic_.messages_by_level[level];
    traffic_.bytes += bytes, traffic_.bytes_by_level[level] += bytes;
    if (on_message_) on_message_(bytes, level_of_link);
  }

  int rank_, size_;
  OnMessage on_message_;
  int64_t operations_ = 0;
  std::vector<LinkLevel> level_of_rank_;
  Traffic traffic_;
};

}  // namespace

std::unique_ptr<Communicator> make_phantom_communicator(int rank, int size, OnMessage on_message) {
  return std::make_unique<PhantomCommunicator>(rank, size, std::move(on_message));
}

}  // namespace pecia::comm
