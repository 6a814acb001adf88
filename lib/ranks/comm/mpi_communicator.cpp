// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/mpi_communicator.hpp"

#include <cstring>
#include <memory>
#include <utility>

#include "lib/ranks/comm/mpi_bytes.hpp"
#include "lib/ranks/comm/mpi_counters.hpp"
#include "lib/ranks/comm/traffic_meter.hpp"

namespace pecia::comm {
namespace {

/// Operations take turns in the tags from tag_operations on: MPI promises tags up to 32767.
enum Tag : int { tag_send_receive = 1, tag_all_to_all = 2, tag_operations = 3 };
constexpr int64_t num_operation_tags = 16384;

/// Shows a blocking MPI call that returns only when all ranks have made it. MPI has no non-blocking
/// form of it, so no time limit can end it here. Instead the watch over the ranks sees the wait and
/// ends the job.
class Blocked {
 public:
  Blocked(NumberedSeries& series, const char* operation) : series_(series) {
    series_.show_wait(operation, series_.next());
  }
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;
  ~Blocked() { series_.show_no_wait(); }

 private:
  NumberedSeries& series_;
};

/// A number that is the same on all ranks of a group and differs between groups.
uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 1;  // then SplitMix64's finish
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(MPI_Comm owned, uint64_t group, std::shared_ptr<MpiCommon> common)
      : comm_(owned),
        group_(group),
        common_(std::move(common)),
        collectives_(*common_->activity, mixed(group, 0)),
        messages_(*common_->activity, mixed(group, 1)),
        operations_(*common_->activity, mixed(group, 2)) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    if (common_->checks == CollectiveChecks::on)
      check_mpi(MPI_Comm_dup(comm_, &checks_comm_), "MPI_Comm_dup");
    check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
    traffic_ = TrafficMeter(rank_, size_);
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;
  ~MpiCommunicator() override {
    if (checks_comm_ != MPI_COMM_NULL) MPI_Comm_free(&checks_comm_);
    MPI_Comm_free(&comm_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Transfer> start_send_receive(std::span<const std::byte> send, int to,
                                               std::span<std::byte> receive, int from) override {
    auto transfer = make_transfer("send_receive", fmt::format("ranks {} and {}", to, from),
                                  messages_.next(), messages_);
    transfer->receive(receive, from, tag_send_receive, comm_);
    transfer->send(send, to, tag_send_receive, comm_);
    count(send, to);
    return transfer;
  }

  std::unique_ptr<Transfer> start_all_to_all(const Blocks& blocks) override {
    PECIA_CHECK(blocks.send.size() == static_cast<size_t>(size_) &&
                    blocks.receive.size() == static_cast<size_t>(size_),
                "{} and {} blocks for {} ranks", blocks.send.size(), blocks.receive.size(), size_);
    check_same("all_to_all", 0);
    auto transfer = start("all_to_all", "all ranks");
    const auto& mine = blocks.send[rank_];
    PECIA_CHECK(mine.size() == blocks.receive[rank_].size(),
                "a rank's block for itself: {} and {} bytes", mine.size(),
                blocks.receive[rank_].size());
    for (int step = 1; step < size_; ++step) {
      const int from = (rank_ - step + size_) % size_, to = (rank_ + step) % size_;
      transfer->receive(blocks.receive[from], from, tag_all_to_all, comm_);
      transfer->send(blocks.send[to], to, tag_all_to_all, comm_);
      count(blocks.send[to], to);
    }
    if (!mine.empty()) std::memcpy(blocks.receive[rank_].data(), mine.data(), mine.size());
    return transfer;
  }

  int64_t next_operation() override { return operations_.next(); }

  void enter_team(uint64_t team, int64_t after) override {
    messages_.enter_team(team, after);
    operations_.enter_team(team, after);
  }

  void show_wait(const Operation* operation) override {
    if (operation != nullptr)
      operations_.show_wait(operation->name, operation->number);
    else
      operations_.show_no_wait();
  }

  void check_same(const char* operation, int64_t shape) override {
    check_within(common_->timeout, operation, shape);
  }

  std::unique_ptr<Transfer> start_exchange(const Exchange& exchange,
                                           const Operation& operation) override {
    const int tag = tag_operations + static_cast<int>(operation.number % num_operation_tags);
    auto transfer = make_transfer(operation.name, exchange.peers(), operation.number, operations_);
    for (const auto& [bytes, from] : exchange.receives) {
      check_peer(from);
      transfer->receive(bytes, from, tag, comm_);
    }
    for (const auto& [bytes, to] : exchange.sends) {
      check_peer(to);
      transfer->send(bytes, to, tag, comm_);
      count(bytes, to);
    }
    return transfer;
  }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    check_same("all_gather", 0);
    return all_gather_bytes(ranks(), mine);
  }
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine, int root) override {
    check_same("gather", root);
    return gather_bytes(ranks(), mine, root);
  }
  void broadcast(std::vector<std::byte>& bytes, int root) override {
    check_same("broadcast", root);
    broadcast_bytes(ranks(), bytes, root);
  }

  int64_t all_reduce_max(int64_t value) override {
    return all_reduce("all_reduce_max", value, MPI_INT64_T, MPI_MAX);
  }
  double all_reduce_sum(double value) override {
    return all_reduce("all_reduce_sum", value, MPI_DOUBLE, MPI_SUM);
  }

  void barrier() override {
    check_within(std::chrono::seconds::zero(), "barrier", 0);
    MpiTransfer transfer({"barrier", collectives_.next(), "all ranks", collectives_},
                         std::chrono::seconds::zero(), common_);
    check_mpi(MPI_Ibarrier(comm_, transfer.add_collective()), "MPI_Ibarrier");
    transfer.wait();
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    check_same("split", 0);
    const Blocked blocked(collectives_, "split");
    MPI_Comm part = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(comm_, color, key, &part), "MPI_Comm_split");
    return child(part);
  }
  std::unique_ptr<Communicator> split_by_host() override {
    check_same("split_by_host", 0);
    const Blocked blocked(collectives_, "split_by_host");
    MPI_Comm part = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &part),
              "MPI_Comm_split_type");
    return child(part);
  }
  std::unique_ptr<SharedCounters> make_counters(int64_t count) override {
    check_same("make_counters", count);
    const Blocked blocked(collectives_, "make_counters");
    return make_mpi_counters(comm_, count);
  }

  bool progress() override {
    if (!common_->polls.due()) return false;
    // Any call into MPI runs its progress engine for all transfers of the process.
    int flag = 0;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &flag, MPI_STATUS_IGNORE),
              "MPI_Iprobe");
    common_->polls.done();
    return true;
  }

  std::chrono::seconds wait_timeout() const override { return common_->timeout; }
  void set_wait_timeout(std::chrono::seconds timeout) override { common_->timeout = timeout; }
  void set_places(const std::vector<RackServerGpu>& by_rank) override {
    traffic_.set_places(by_rank);
  }
  Traffic traffic() const override { return traffic_.traffic(); }

 private:
  std::unique_ptr<MpiTransfer> start(const char* operation, std::string peers) {
    return make_transfer(operation, std::move(peers), collectives_.next(), collectives_);
  }
  std::unique_ptr<MpiTransfer> make_transfer(const char* operation, std::string peers,
                                             int64_t number, NumberedSeries& series) const {
    return std::make_unique<MpiTransfer>(
        MpiTransfer::Label{operation, number, std::move(peers), series}, common_->timeout, common_);
  }
  /// Wraps a part of this group. Its group number follows from its lowest rank here and the number
  /// of parts made before.
  std::unique_ptr<Communicator> child(MPI_Comm part) {
    MPI_Group here = MPI_GROUP_NULL, there = MPI_GROUP_NULL;
    check_mpi(MPI_Comm_group(comm_, &here), "MPI_Comm_group");
    check_mpi(MPI_Comm_group(part, &there), "MPI_Comm_group");
    const int first = 0;
    int first_here = 0;
    check_mpi(MPI_Group_translate_ranks(there, 1, &first, here, &first_here),
              "MPI_Group_translate_ranks");
    MPI_Group_free(&here);
    MPI_Group_free(&there);
    const uint64_t group = mixed(mixed(group_, ++children_), first_here);
    return std::make_unique<MpiCommunicator>(part, group, common_);
  }
  void check_within(std::chrono::seconds timeout, const char* operation, int64_t shape) {
    if (common_->checks == CollectiveChecks::off) return;
    const CollectiveHeader mine(operation, ++checked_, shape);
    std::vector<CollectiveHeader> all(size_);
    MpiTransfer transfer(
        {operation, collectives_.next(), "all ranks, before it begins", collectives_}, timeout,
        common_);
    check_mpi(MPI_Iallgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE,
                             checks_comm_, transfer.add_collective()),
              "MPI_Iallgather");
    transfer.wait();
    require_same(all);
  }
  void check_peer(int rank) const {
    PECIA_CHECK(rank >= 0 && rank < size_ && rank != rank_,
                "rank {} of {} exchanges with rank {}, not with another of its group", rank_, size_,
                rank);
  }
  void count(std::span<const std::byte> sent, int to) {
    traffic_.count(static_cast<int64_t>(sent.size()), to);
  }
  template <typename T>
  T all_reduce(const char* operation, T value, MPI_Datatype type, MPI_Op op) {
    check_same(operation, 0);
    T result{};
    auto transfer = start(operation, "all ranks");
    check_mpi(MPI_Iallreduce(&value, &result, 1, type, op, comm_, transfer->add_collective()),
              "MPI_Iallreduce");
    transfer->wait();
    return result;
  }
  MpiRanks ranks() {
    return {comm_, rank_, size_, [this](const char* operation, std::string peers) {
              return start(operation, std::move(peers));
            }};
  }

  MPI_Comm comm_, checks_comm_ = MPI_COMM_NULL;
  uint64_t group_;
  std::shared_ptr<MpiCommon> common_;
  NumberedSeries collectives_, messages_, operations_;
  uint64_t children_ = 0;
  int rank_ = 0, size_ = 1;
  int64_t checked_ = 0;
  TrafficMeter traffic_{0, 1};
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent,
                                                    std::chrono::seconds wait_timeout,
                                                    std::shared_ptr<Activity> activity,
                                                    CollectiveChecks checks) {
  MPI_Comm own = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(parent, &own), "MPI_Comm_dup");
  constexpr uint64_t root_group = 1;
  return std::make_unique<MpiCommunicator>(
      own, root_group,
      std::make_shared<MpiCommon>(MpiCommon{wait_timeout, std::move(activity), checks}));
}

}  // namespace pecia::comm
