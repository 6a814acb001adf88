// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/team.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/collectives.hpp"
#include "lib/ranks/comm/traffic_meter.hpp"

namespace pecia::comm {
namespace {

constexpr int64_t most_operations = int64_t{1} << 24;  // of a team, until the next one is made

/// A number for a list of ranks, not 0 (FNV-1a).
uint64_t label_of(const std::vector<int>& ranks) {
  uint64_t label = 0xcbf29ce484222325u;
  for (const int rank : ranks) label = (label ^ static_cast<uint64_t>(rank)) * 0x100000001b3u;
  return label | 1;
}

class Team : public Communicator {
 public:
  Team(Communicator& parent, std::vector<int> ranks, int64_t serial)
      : parent_(parent), ranks_(std::move(ranks)) {
    const std::set<int> distinct(ranks_.begin(), ranks_.end());
    PECIA_CHECK(!ranks_.empty() && distinct.size() == ranks_.size() && *distinct.begin() >= 0 &&
                    *distinct.rbegin() < parent.size(),
                "a team of ranks {} of {}", fmt::join(ranks_, ", "), parent.size());
    const auto own = std::find(ranks_.begin(), ranks_.end(), parent.rank());
    PECIA_CHECK(own != ranks_.end(), "rank {} is not in the team of ranks {}", parent.rank(),
                fmt::join(ranks_, ", "));
    rank_ = static_cast<int>(own - ranks_.begin());
    traffic_ = TrafficMeter(rank_, size());
    parent.enter_team(label_of(ranks_), serial * most_operations);
    if (&parent.on_host() == &parent) return;
    auto host = std::make_unique<Team>(parent.on_host(), ranks_, serial);
    on_host_ = host.get();
    staged_ = std::move(host);
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }

  std::unique_ptr<Transfer> start_send_receive(std::span<const std::byte> send, int to,
                                               std::span<std::byte> receive, int from) override {
    count(send, to);
    return parent_.start_send_receive(send, ranks_.at(to), receive, ranks_.at(from));
  }

  std::unique_ptr<Transfer> start_all_to_all(const Blocks& blocks) override {
    PECIA_CHECK(blocks.send.size() == ranks_.size() && blocks.receive.size() == ranks_.size(),
                "{} and {} blocks for {} ranks", blocks.send.size(), blocks.receive.size(), size());
    Exchange exchange;
    for (int step = 1; step < size(); ++step) {  // else all ranks would send to rank 0 first
      const int to = (rank_ + step) % size(), from = (rank_ - step + size()) % size();
      exchange.sends.push_back({blocks.send[to], to});
      exchange.receives.push_back({blocks.receive[from], from});
    }
    const auto copy = [&] {
      return parent_.start_send_receive(blocks.send[rank_], parent_.rank(), blocks.receive[rank_],
                                        parent_.rank());
    };
    return std::make_unique<Both>(copy(),
                                  start_exchange(exchange, {"all_to_all", next_operation()}));
  }

  int64_t next_operation() override { return parent_.next_operation(); }
  void enter_team(uint64_t, int64_t) override { fail<Unsupported>("a team has no teams"); }

  /// Does nothing, because the parent's checks would involve ranks of other teams.
  void check_same(const char*, int64_t) override {}

  void show_wait(const Operation* operation) override { parent_.show_wait(operation); }

  std::unique_ptr<Transfer> start_exchange(const Exchange& exchange,
                                           const Operation& operation) override {
    Exchange translated;
    for (const auto& [bytes, to] : exchange.sends) {
      translated.sends.push_back({bytes, ranks_.at(to)});
      count(bytes, to);
    }
    for (const auto& [bytes, from] : exchange.receives)
      translated.receives.push_back({bytes, ranks_.at(from)});
    return parent_.start_exchange(translated, operation);
  }

  bool on_stream() const override { return parent_.on_stream(); }
  std::string tensors_by() const override { return parent_.tensors_by(); }
  Communicator& on_host() override { return on_host_ ? *on_host_ : *this; }

  std::unique_ptr<Collectives> make_collectives(const RankLabels& labels, SumOrder order) override {
    if (!parent_.on_stream()) return Communicator::make_collectives(labels, order);
    if (staged_.get() == on_host_) staged_ = parent_.by_way_of_host(std::move(staged_));
    return staged_->make_collectives(labels, order);
  }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    return gathered("all_gather", mine, all(), all());
  }
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine, int root) override {
    return gathered("gather", mine, {root}, rank_ == root ? all() : std::vector<int>());
  }
  void broadcast(std::vector<std::byte>& bytes, int root) override {
    auto parts = gathered("broadcast", bytes, rank_ == root ? all() : std::vector<int>(), {root});
    if (rank_ != root) bytes = std::move(parts[root]);
  }
  int64_t all_reduce_max(int64_t value) override {
    const auto values = gather_values(value);
    return *std::max_element(values.begin(), values.end());
  }
  double all_reduce_sum(double value) override {
    double sum = 0;
    for (const double one : gather_values(value)) sum += one;
    return sum;
  }
  void barrier() override { gather_values(uint8_t{0}); }

  std::unique_ptr<Communicator> split(int, int) override {
    fail<Unsupported>("a team cannot be split; make another team");
  }
  std::unique_ptr<Communicator> split_by_host() override {
    fail<Unsupported>("a team does not know its hosts");
  }
  std::unique_ptr<SharedCounters> make_counters(int64_t) override {
    fail<Unsupported>("a team has no shared counters");
  }

  bool progress() override { return parent_.progress(); }
  std::chrono::seconds wait_timeout() const override { return parent_.wait_timeout(); }
  void set_wait_timeout(std::chrono::seconds timeout) override {
    parent_.set_wait_timeout(timeout);
  }
  void set_places(const std::vector<RackServerGpu>& by_rank) override {
    traffic_.set_places(by_rank);
  }
  Traffic traffic() const override { return traffic_.traffic(); }

 private:
  struct Both : Transfer {
    Both(std::unique_ptr<Transfer> one, std::unique_ptr<Transfer> other)
        : first(std::move(one)), second(std::move(other)) {}
    bool test() override {
      const bool done = first->test();
      return second->test() && done;
    }
    void wait() override {
      first->wait();
      second->wait();
    }
    std::unique_ptr<Transfer> first, second;
  };

  std::vector<int> all() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size(); ++rank) ranks.push_back(rank);
    return ranks;
  }

  /// Sends `mine` to `receivers` and returns by rank the bytes of `senders`. Sizes travel first,
  /// then bytes. This rank's own bytes need no message.
  std::vector<std::vector<std::byte>> gathered(const char* name, std::span<const std::byte> mine,
                                               const std::vector<int>& receivers,
                                               const std::vector<int>& senders) {
    if (on_host_) return on_host_->gathered(name, mine, receivers, senders);
    const Operation operation{name, next_operation()};
    const auto size_of_mine = static_cast<int64_t>(mine.size());
    std::vector<int64_t> sizes(ranks_.size());
    std::vector<std::vector<std::byte>> parts(senders.empty() ? 0 : ranks_.size());
    Exchange of_sizes, of_bytes;
    for (const int to : receivers) {
      if (to == rank_) continue;
      of_sizes.sends.push_back({std::as_bytes(std::span(&size_of_mine, 1)), to});
      of_bytes.sends.push_back({mine, to});
    }
    for (const int from : senders)
      if (from != rank_)
        of_sizes.receives.push_back({std::as_writable_bytes(std::span(&sizes[from], 1)), from});
    start_exchange(of_sizes, operation)->wait();
    for (const int from : senders) {
      if (from == rank_) {
        parts[from].assign(mine.begin(), mine.end());
        continue;
      }
      parts[from].resize(sizes[from]);
      of_bytes.receives.push_back({parts[from], from});
    }
    start_exchange(of_bytes, operation)->wait();
    return parts;
  }

  template <typename T>
  std::vector<T> gather_values(T value) {
    std::vector<T> values;
    for (const auto& part : all_gather(std::as_bytes(std::span(&value, 1))))
      std::memcpy(&values.emplace_back(), part.data(), sizeof(T));
    return values;
  }

  void count(std::span<const std::byte> sent, int to) {
    traffic_.count(static_cast<int64_t>(sent.size()), to);
  }

  Communicator& parent_;
  std::vector<int> ranks_;
  int rank_ = 0;
  Team* on_host_ = nullptr;  ///< these ranks for host memory, where it is another group
  std::unique_ptr<Communicator> staged_;  ///< on_host_, or what is built on it for sums
  TrafficMeter traffic_{0, 1};
};

}  // namespace

std::unique_ptr<Communicator> make_team(Communicator& parent, std::vector<int> ranks,
                                        int64_t serial) {
  return std::make_unique<Team>(parent, std::move(ranks), serial);
}

}  // namespace pecia::comm
