// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/phantom.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/host_collectives.hpp"
#include "lib/ranks/comm/traffic_meter.hpp"

namespace pecia::comm {
namespace {

/// What the groups of one phantom share.
struct Telling {
  PhantomListener* listener = nullptr;
  uint64_t groups = 0;  ///< number of groups made so far: the same on every rank
  int64_t last = -1;    ///< number of the messages started last

  int64_t started(const PhantomStart& start) {
    return last = listener == nullptr ? last + 1 : listener->started(start);
  }
};

/// Is done, and tells when it is waited for.
class PhantomTransfer : public Transfer {
 public:
  PhantomTransfer(Telling& telling, int64_t number) : telling_(telling), number_(number) {}
  bool test() override { return true; }
  void wait() override {
    if (telling_.listener != nullptr) telling_.listener->waited(number_);
  }

 private:
  Telling& telling_;
  int64_t number_;
};

/// Collectives that tell when they are waited for: their last exchange is.
class PhantomCollectives : public Collectives {
 public:
  PhantomCollectives(Communicator& group, const RankLabels& labels,
                     std::shared_ptr<Telling> telling)
      : inner_(group, labels, Sums::left_out), telling_(std::move(telling)) {}

  Route route() const override { return inner_.route(); }
  std::unique_ptr<Transfer> start_all_gather(std::vector<std::span<std::byte>> blocks) override {
    return told([&] { return inner_.start_all_gather(std::move(blocks)); });
  }
  std::unique_ptr<Transfer> start_reduce_scatter(Addends partial, std::span<const int64_t> counts,
                                                 Addends mine) override {
    return told([&] { return inner_.start_reduce_scatter(partial, counts, mine); });
  }
  std::unique_ptr<Transfer> start_all_reduce(Addends values) override {
    return told([&] { return inner_.start_all_reduce(values); });
  }
  void progress() override {}

 private:
  template <typename Start>
  std::unique_ptr<Transfer> told(const Start& start) {
    const int64_t before = telling_->last;
    start();  // it is done at once
    if (telling_->last == before) return std::make_unique<DoneTransfer>();
    return std::make_unique<PhantomTransfer>(*telling_, telling_->last);
  }

  HostCollectives inner_;
  std::shared_ptr<Telling> telling_;
};

class PhantomCommunicator : public Communicator {
 public:
  /// `ranks` of the outermost group; this is the one at `rank`.
  PhantomCommunicator(int rank, std::vector<int> ranks, std::shared_ptr<Telling> telling)
      : rank_(rank),
        ranks_(std::move(ranks)),
        telling_(std::move(telling)),
        group_(++telling_->groups),
        traffic_(rank, size()) {
    PECIA_CHECK(0 <= rank && rank < size(), "rank {} of {}", rank, size());
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }

  std::unique_ptr<Transfer> start_send_receive(std::span<const std::byte> send, int to,
                                               std::span<std::byte> receive, int from) override {
    PhantomStart start{.group = label(), .in_series = true};
    add_send(start, send, to);
    add(start.receives, receive, from);
    return begin(start);
  }
  std::unique_ptr<Transfer> start_all_to_all(const Blocks& blocks) override {
    PECIA_CHECK(blocks.send.size() == ranks_.size() && blocks.receive.size() == ranks_.size(),
                "{} and {} blocks for {} ranks", blocks.send.size(), blocks.receive.size(), size());
    PhantomStart start{.group = label()};
    for (int peer = 0; peer < size(); ++peer) {
      add_send(start, blocks.send[peer], peer);
      add(start.receives, blocks.receive[peer], peer);
    }
    return begin(start);
  }
  int64_t next_operation() override { return ++operations_; }
  void enter_team(uint64_t team, int64_t) override { team_ = team; }
  void check_same(const char*, int64_t) override {}
  void show_wait(const Operation*) override {}
  std::unique_ptr<Transfer> start_exchange(const Exchange& exchange,
                                           const Operation& operation) override {
    if (operation.number != steps_of_) steps_of_ = operation.number, steps_ = 0;
    PhantomStart start{.group = label(), .step = steps_++};
    for (const auto& [bytes, to] : exchange.sends) {
      PECIA_CHECK(0 <= to && to < size() && to != rank_, "rank {} of {} sends to rank {}", rank_,
                  size(), to);
      add_send(start, bytes, to);
    }
    for (const auto& [bytes, from] : exchange.receives) add(start.receives, bytes, from);
    return begin(start);
  }
  std::unique_ptr<Collectives> make_collectives(const RankLabels& labels, SumOrder) override {
    return std::make_unique<PhantomCollectives>(*this, labels, telling_);
  }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    return std::vector<std::vector<std::byte>>(ranks_.size(), {mine.begin(), mine.end()});
  }
  void broadcast(std::vector<std::byte>&, int) override {}
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine, int root) override {
    return root == rank_ ? all_gather(mine) : std::vector<std::vector<std::byte>>();
  }
  int64_t all_reduce_max(int64_t value) override { return value; }
  double all_reduce_sum(double value) override { return value * size(); }
  void barrier() override {}

  std::unique_ptr<Communicator> part(const std::vector<int>& ranks) override {
    const auto own = std::find(ranks.begin(), ranks.end(), rank_);
    PECIA_CHECK(own != ranks.end(), "rank {} is not in its own part", rank_);
    std::vector<int> outermost;
    for (const int rank : ranks) outermost.push_back(ranks_.at(rank));
    return std::make_unique<PhantomCommunicator>(static_cast<int>(own - ranks.begin()),
                                                 std::move(outermost), telling_);
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
  /// The group, or its team.
  uint64_t label() const { return team_ == 0 ? group_ : team_ ^ group_; }

  void add_send(PhantomStart& start, std::span<const std::byte> bytes, int to) {
    traffic_.count(static_cast<int64_t>(bytes.size()), to);
    add(start.sends, bytes, to);
  }
  void add(std::vector<PhantomMessage>& messages, std::span<const std::byte> bytes,
           int peer) const {
    if (!bytes.empty() && peer != rank_)
      messages.push_back({static_cast<int64_t>(bytes.size()), ranks_.at(peer)});
  }

  std::unique_ptr<Transfer> begin(const PhantomStart& start) {
    return std::make_unique<PhantomTransfer>(*telling_, telling_->started(start));
  }

  int rank_;
  std::vector<int> ranks_;  ///< by rank of the group, their ranks in the outermost one
  std::shared_ptr<Telling> telling_;
  uint64_t group_, team_ = 0;
  int64_t operations_ = 0;
  int64_t steps_of_ = 0;  ///< the operation of the last exchange
  int steps_ = 0;         ///< exchanges of it so far
  TrafficMeter traffic_;
};

}  // namespace

std::unique_ptr<Communicator> make_phantom_communicator(int rank, int size,
                                                        PhantomListener* listener) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  auto telling = std::make_shared<Telling>();
  telling->listener = listener;
  return std::make_unique<PhantomCommunicator>(rank, std::move(ranks), std::move(telling));
}

}  // namespace pecia::comm
