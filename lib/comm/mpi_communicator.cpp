// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/mpi_communicator.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>

#include "lib/comm/series.hpp"
#include "lib/comm/traffic_meter.hpp"
#include "lib/comm/wait.hpp"

namespace pecia::comm {
namespace {

constexpr size_t max_message_bytes = size_t{1} << 30;  // MPI counts are ints

/// Operations take turns in the tags from tag_operations on: MPI promises tags up to 32767.
enum Tag : int { tag_send_receive = 1, tag_all_to_all = 2, tag_operations = 3 };
constexpr int64_t num_operation_tags = 16384;

/// Describes a transfer in the error of a wait that fails.
struct Label {
  const char* operation;
  int64_t number;
  std::string peers;
  NumberedSeries& series;  ///< the series of the communicator
};

/// Decides when to poll MPI next, for all communicators that come from one. Where ranks share cores
/// and yield to each other, a poll may cost the rank its core for some milliseconds.
class Polls {
 public:
  void start() { ++under_way_; }
  void finish() { --under_way_; }

  /// Whether a poll is due: 20 µs after the last one while a transfer is under way; else after 1
  /// ms, because other ranks may need progress from this one.
  bool due() const {
    const std::chrono::microseconds pause(under_way_ > 0 ? 20 : 1000);
    return Clock::now() - last_ >= pause;
  }
  void done() { last_ = Clock::now(); }

 private:
  using Clock = std::chrono::steady_clock;
  int64_t under_way_ = 0;
  Clock::time_point last_;
};

/// State shared by all communicators that come from one.
struct Common {
  std::chrono::seconds timeout;
  std::shared_ptr<Activity> activity;
  CollectiveChecks checks;
  Polls polls;
};

class MpiTransfer : public Transfer {
 public:
  MpiTransfer(Label label, std::chrono::seconds timeout, std::shared_ptr<Common> common)
      : label_(std::move(label)), timeout_(timeout), common_(std::move(common)) {
    common_->polls.start();
  }
  MpiTransfer(const MpiTransfer&) = delete;
  MpiTransfer& operator=(const MpiTransfer&) = delete;
  ~MpiTransfer() override {
    common_->polls.finish();
    if (collective_) return;  // MPI cannot abandon collectives
    for (MPI_Request& request : requests_)
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }

  void send(std::span<const std::byte> bytes, int to, int tag, MPI_Comm comm) {
    for_pieces(bytes.size(), [&](size_t offset, int count) {
      check_mpi(MPI_Isend(bytes.data() + offset, count, MPI_BYTE, to, tag, comm, add()),
                "MPI_Isend");
    });
  }
  void receive(std::span<std::byte> bytes, int from, int tag, MPI_Comm comm) {
    for_pieces(bytes.size(), [&](size_t offset, int count) {
      check_mpi(MPI_Irecv(bytes.data() + offset, count, MPI_BYTE, from, tag, comm, add()),
                "MPI_Irecv");
    });
  }

  bool test() override {
    if (requests_.empty()) return true;
    int done = 0;
    const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                                 MPI_STATUSES_IGNORE);
    // After an error some requests are gone, and MPI does not say which, so none is touched again.
    if (done != 0 || code != MPI_SUCCESS) requests_.clear();
    if (code != MPI_SUCCESS) check_mpi(code, described().c_str());
    return done != 0;
  }
  void wait() override {
    wait_until([this] { return test(); }, [this] { return described(); },
               [this](bool waits) {
                 if (waits)
                   label_.series.show_wait(label_.operation, label_.number);
                 else
                   label_.series.show_no_wait();
               },
               timeout_);
  }

  /// The request for one of MPI's collectives.
  MPI_Request* add_collective() {
    collective_ = true;
    return add();
  }

 private:
  MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }

  std::string described() const {
    return fmt::format("{} #{} with {}", label_.operation, label_.number, label_.peers);
  }

  template <typename F>
  static void for_pieces(size_t bytes, F each) {
    for (size_t offset = 0; offset < bytes; offset += max_message_bytes)
      each(offset, static_cast<int>(std::min(max_message_bytes, bytes - offset)));
  }

  Label label_;
  std::chrono::seconds timeout_;
  std::shared_ptr<Common> common_;
  std::vector<MPI_Request> requests_;
  bool collective_ = false;
};

int int_count(size_t bytes, const char* operation) {
  if (bytes > static_cast<size_t>(std::numeric_limits<int>::max()))
    fail<InvalidArgument>("{} of {} bytes: more than an MPI count holds", operation, bytes);
  return static_cast<int>(bytes);
}

class MpiSharedCounters : public SharedCounters {
 public:
  MpiSharedCounters(MPI_Comm comm, int64_t count) : count_(count) {
    int rank = 0;
    MPI_Comm_rank(comm, &rank);
    const MPI_Aint held = rank == 0 ? count : 0;
    check_mpi(MPI_Win_allocate(held * static_cast<MPI_Aint>(sizeof(int64_t)), sizeof(int64_t),
                               MPI_INFO_NULL, comm, &values_, &window_),
              "MPI_Win_allocate");
    check_mpi(MPI_Win_lock_all(0, window_), "MPI_Win_lock_all");
    std::fill_n(values_, held, int64_t{0});
    check_mpi(MPI_Win_sync(window_), "MPI_Win_sync");
    check_mpi(MPI_Barrier(comm), "MPI_Barrier");
  }
  MpiSharedCounters(const MpiSharedCounters&) = delete;
  MpiSharedCounters& operator=(const MpiSharedCounters&) = delete;
  ~MpiSharedCounters() override {
    // Freeing a window waits for all ranks. A rank that fails alone must not wait, so that it can
    // report its error.
    if (std::uncaught_exceptions() > exceptions_) return;
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }
  int64_t add(int64_t index, int64_t amount) override {
    PECIA_CHECK(0 <= index && index < count_, "counter {} of {}", index, count_);
    int64_t before = 0;
    check_mpi(MPI_Fetch_and_op(&amount, &before, MPI_INT64_T, 0, index, MPI_SUM, window_),
              "MPI_Fetch_and_op");
    // This call also blocks without a limit, but it waits only for rank 0's memory, which MPI
    // serves there.
    check_mpi(MPI_Win_flush(0, window_), "MPI_Win_flush");
    return before;
  }

 private:
  const int exceptions_ = std::uncaught_exceptions();
  const int64_t count_;
  int64_t* values_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
};

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
  MpiCommunicator(MPI_Comm owned, uint64_t group, std::shared_ptr<Common> common)
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
    const int count = int_count(mine.size(), "all_gather");
    check_same("all_gather", 0);
    std::vector<int> counts(size_);
    auto sizes = start("all_gather", "all ranks");
    check_mpi(MPI_Iallgather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, comm_,
                             sizes->add_collective()),
              "MPI_Iallgather");
    sizes->wait();
    std::vector<std::byte> all;
    const auto offsets = lay_out(counts, all, "all_gather");
    auto data = start("all_gather", "all ranks");
    check_mpi(MPI_Iallgatherv(mine.data(), count, MPI_BYTE, all.data(), counts.data(),
                              offsets.data(), MPI_BYTE, comm_, data->add_collective()),
              "MPI_Iallgatherv");
    data->wait();
    return cut(all, counts, offsets);
  }

  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine, int root) override {
    const int count = int_count(mine.size(), "gather");
    check_same("gather", root);
    std::vector<int> counts(rank_ == root ? size_ : 0);
    auto sizes = start("gather", fmt::format("root {}", root));
    check_mpi(MPI_Igather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, root, comm_,
                          sizes->add_collective()),
              "MPI_Igather");
    sizes->wait();
    std::vector<std::byte> all;
    const auto offsets = lay_out(counts, all, "gather");
    auto data = start("gather", fmt::format("root {}", root));
    check_mpi(MPI_Igatherv(mine.data(), count, MPI_BYTE, all.data(), counts.data(), offsets.data(),
                           MPI_BYTE, root, comm_, data->add_collective()),
              "MPI_Igatherv");
    data->wait();
    return cut(all, counts, offsets);
  }

  void broadcast(std::vector<std::byte>& bytes, int root) override {
    check_same("broadcast", root);
    // The size and the first kilobyte travel together, so the plan of a decode step is one message.
    struct Head {
      int64_t size;
      std::array<std::byte, 1016> first;
    } head{};
    const size_t inline_bytes = head.first.size();
    if (rank_ == root) {
      head.size = static_cast<int64_t>(bytes.size());
      if (!bytes.empty())
        std::memcpy(head.first.data(), bytes.data(), std::min(bytes.size(), inline_bytes));
    }
    broadcast_raw(std::as_writable_bytes(std::span(&head, 1)), root);
    bytes.resize(head.size);
    if (!bytes.empty())
      std::memcpy(bytes.data(), head.first.data(), std::min(bytes.size(), inline_bytes));
    if (bytes.size() > inline_bytes) broadcast_raw(std::span(bytes).subspan(inline_bytes), root);
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
    return std::make_unique<MpiSharedCounters>(comm_, count);
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
    return std::make_unique<MpiTransfer>(Label{operation, number, std::move(peers), series},
                                         common_->timeout, common_);
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
  void broadcast_raw(std::span<std::byte> bytes, int root) {
    for (size_t offset = 0; offset < bytes.size(); offset += max_message_bytes) {
      auto transfer = start("broadcast", fmt::format("root {}", root));
      const int count = static_cast<int>(std::min(max_message_bytes, bytes.size() - offset));
      check_mpi(MPI_Ibcast(bytes.data() + offset, count, MPI_BYTE, root, comm_,
                           transfer->add_collective()),
                "MPI_Ibcast");
      transfer->wait();
    }
  }
  static std::vector<int> lay_out(const std::vector<int>& counts, std::vector<std::byte>& all,
                                  const char* operation) {
    std::vector<int> offsets(counts.size());
    size_t total = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      offsets[i] = int_count(total, operation);
      total += counts[i];
    }
    all.resize(total);
    return offsets;
  }
  static std::vector<std::vector<std::byte>> cut(const std::vector<std::byte>& all,
                                                 const std::vector<int>& counts,
                                                 const std::vector<int>& offsets) {
    std::vector<std::vector<std::byte>> parts(counts.size());
    for (size_t i = 0; i < counts.size(); ++i)
      parts[i].assign(all.begin() + offsets[i], all.begin() + offsets[i] + counts[i]);
    return parts;
  }

  MPI_Comm comm_, checks_comm_ = MPI_COMM_NULL;
  uint64_t group_;
  std::shared_ptr<Common> common_;
  NumberedSeries collectives_, messages_, operations_;
  uint64_t children_ = 0;
  int rank_ = 0, size_ = 1;
  int64_t checked_ = 0;
  TrafficMeter traffic_{0, 1};
};

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail<SystemError>("{} failed: {}", call, std::string(text, length));
}

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent,
                                                    std::chrono::seconds wait_timeout,
                                                    std::shared_ptr<Activity> activity,
                                                    CollectiveChecks checks) {
  MPI_Comm own = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(parent, &own), "MPI_Comm_dup");
  constexpr uint64_t root_group = 1;
  return std::make_unique<MpiCommunicator>(
      own, root_group,
      std::make_shared<Common>(Common{wait_timeout, std::move(activity), checks, Polls()}));
}

}  // namespace pecia::comm
