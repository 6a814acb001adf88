// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/nccl_communicator.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <deque>
#include <future>
#include <list>
#include <mutex>
#include <thread>

#include "lib/comm/collectives.hpp"
#include "lib/comm/communicator_over.hpp"
#include "lib/comm/registered_blocks.hpp"
#include "lib/comm/staged_communicator.hpp"
#include "lib/comm/traffic_meter.hpp"
#include "lib/core/error.hpp"
#include "lib/device/buffer.hpp"

namespace pecia::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// A group and its splits, which may be aborted together from any thread.
class Groups {
 public:
  void add(Nccl& group) {
    const std::lock_guard lock(mutex_);
    all_.push_back(&group);
  }
  /// Returns when the group is not being aborted.
  void remove(Nccl& group) {
    const std::lock_guard lock(mutex_);
    all_.remove(&group);
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    for (Nccl* group : all_) group->abort();
  }
  std::string asynchronous_error() {
    const std::lock_guard lock(mutex_);
    for (Nccl* group : all_)
      if (std::string words = group->asynchronous_error(); !words.empty()) return words;
    return "";
  }

 private:
  std::mutex mutex_;
  std::list<Nccl*> all_;
};

/// Aborts the groups from a thread of its own, and tells `late` when that is done or `patience` is
/// over: a library in which one call does not return may not return from another.
CallWatch::Late aborting(std::shared_ptr<Groups> groups, Clock::duration patience,
                         CallWatch::Late late) {
  return [groups = std::move(groups), patience, late = std::move(late)](const std::string& words) {
    auto aborted = std::make_shared<std::promise<void>>();
    const std::future<void> done = aborted->get_future();
    std::thread([groups, aborted] {
      groups->abort();
      aborted->set_value();
    }).detach();
    const bool in_time = done.wait_for(patience) == std::future_status::ready;
    late(words + (in_time ? "" : "; NCCL did not abort it in time"));
  };
}

/// The operations under way in a group and its splits. look() checks that they make progress.
class Watch {
 public:
  struct Started {
    const char* operation;
    int64_t number;
    std::string peers;
    std::shared_ptr<device::Event> done;
    Clock::time_point at;
  };

  Watch(std::chrono::seconds timeout, CallWatch::Late late)
      : timeout_(timeout),
        calls_(timeout,
               aborting(groups_, std::min(timeout, most_abort_patience), std::move(late))) {}

  CallWatch& calls() { return calls_; }

  void add(Nccl& group) { groups_->add(group); }
  void remove(Nccl& group) { groups_->remove(group); }
  void add(Started started) { started_.push_back(std::move(started)); }

  /// Returns an event that no transfer uses any more, or a new one.
  std::shared_ptr<device::Event> event(device::Device& device) {
    forget_done();
    for (std::shared_ptr<device::Event>& event : free_)
      if (event.use_count() == 1) {
        std::swap(event, free_.back());
        auto taken = std::move(free_.back());
        free_.pop_back();
        return taken;
      }
    return device.make_event();
  }

  /// Checks at most once per millisecond; returns whether it did.
  bool look() {
    const Clock::time_point now = Clock::now();
    if (now - looked_ < std::chrono::milliseconds(1)) return false;
    looked_ = now;
    forget_done();
    if (const std::string words = groups_->asynchronous_error(); !words.empty()) give_up(words);
    if (timeout_.count() > 0 && !started_.empty() && now - started_.front().at > timeout_)
      give_up(fmt::format("nothing arrived for {} s", timeout_.count()));
    return true;
  }

 private:
  void forget_done() {
    while (!started_.empty() && started_.front().done->done()) {
      free_.push_back(std::move(started_.front().done));
      started_.pop_front();
    }
  }
  [[noreturn]] void give_up(const std::string& words) {
    groups_->abort();
    if (started_.empty()) fail<SystemError>("NCCL: {}", words);
    const Started& oldest = started_.front();
    fail<SystemError>("{} #{} with {}: {}", oldest.operation, oldest.number, oldest.peers, words);
  }

  static constexpr std::chrono::seconds most_abort_patience{10};

  std::chrono::seconds timeout_;
  std::shared_ptr<Groups> groups_ = std::make_shared<Groups>();
  std::deque<Started> started_;
  std::vector<std::shared_ptr<device::Event>> free_;  ///< events whose marks are reached
  Clock::time_point looked_;
  CallWatch calls_;
};

/// A part of a group for some of its calls only, and the blocks registered with it.
struct Part {
  Part(std::unique_ptr<Nccl> group, device::Device& device, device::Stream& sending)
      : nccl(std::move(group)), registered(*nccl, device, sending) {}

  std::unique_ptr<Nccl> nccl;
  RegisteredBlocks registered;
};

/// Enqueues the operations of a group and its collectives.
class Queue {
 public:
  Queue(std::unique_ptr<Nccl> nccl, device::Device& device, device::Stream& computing,
        std::shared_ptr<device::Stream> sending, std::shared_ptr<Watch> watch, int rank, int size)
      : nccl_(std::move(nccl)),
        device_(device),
        computing_(computing),
        sending_(std::move(sending)),
        watch_(std::move(watch)),
        registered_(*nccl_, device, *sending_),
        ready_(device.make_event()),
        rank_(rank),
        size_(size),
        traffic_(rank, size) {
    watch_->add(*nccl_);
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() { watch_->remove(*nccl_); }

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
    watch_->look();
    ready_->record(computing_);
    ready_->make_wait(*sending_);
    ++number_;
    {
      const CallWatch::Call call = watch_->calls().begin(operation, number_, peers);
      groups(*sending_);
    }
    std::shared_ptr<device::Event> done = watch_->event(device_);
    done->record(*sending_);
    watch_->add({operation, number_, std::move(peers), done, Clock::now()});
    return std::make_unique<OnStream>(std::move(done), computing_);
  }

  /// Copies after the work that the computing stream holds, like any transfer.
  void copy(std::span<const std::byte> from, std::span<std::byte> to) {
    PECIA_CHECK(from.size() == to.size(), "a rank's block for itself: {} and {} bytes", from.size(),
                to.size());
    device_.copy(to.data(), from.data(), static_cast<int64_t>(from.size()), computing_);
  }

  void count(size_t bytes, int to) { traffic_.count(static_cast<int64_t>(bytes), to); }
  void count_to_all(size_t bytes) {
    for (int to = 0; to < size_; ++to) count(bytes, to);
  }
  void set_places(const std::vector<RackServerGpu>& by_rank) { traffic_.set_places(by_rank); }
  const Traffic& traffic() const { return traffic_.traffic(); }

  bool look() { return watch_->look(); }
  device::Device& device() const { return device_; }
  device::Stream& computing() const { return computing_; }
  /// Makes a part that is watched like the group itself.
  std::unique_ptr<Part> split_part(int color, int key) const {
    auto part = std::make_unique<Part>(split_nccl(color, key), device_, *sending_);
    watch_->add(*part->nccl);
    return part;
  }
  void give_back(Part& part) const { watch_->remove(*part.nccl); }
  std::shared_ptr<Queue> split(int color, int key, int rank, int size) const {
    return std::make_shared<Queue>(split_nccl(color, key), device_, computing_, sending_, watch_,
                                   rank, size);
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
  std::shared_ptr<Watch> watch_;
  RegisteredBlocks registered_;
  std::unique_ptr<device::Event> ready_;
  int rank_, size_;
  int64_t number_ = 0;
  TrafficMeter traffic_;
};

/// The memory of all blocks, if they are of one size and follow each other; else empty.
std::span<std::byte> whole_of(const std::vector<std::span<std::byte>>& blocks) {
  const std::span<std::byte> first = blocks.front();
  for (size_t rank = 0; rank < blocks.size(); ++rank)
    if (blocks[rank].size() != first.size() ||
        blocks[rank].data() != first.data() + rank * first.size())
      return {};
  return {first.data(), blocks.size() * first.size()};
}

class NcclCollectives : public Collectives {
 public:
  explicit NcclCollectives(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}

  /// NCCL chooses the route itself.
  Route route() const override { return Route::flat; }

  std::unique_ptr<Transfer> start_all_gather(std::vector<std::span<std::byte>> blocks) override {
    queue_->count_to_all(blocks[queue_->rank()].size());
    for (const auto& block : blocks) queue_->use(block);
    return queue_->start("all_gather", "all ranks", [&](Nccl& nccl, device::Stream& stream) {
      if (const std::span<std::byte> whole = whole_of(blocks); !whole.empty())
        return nccl.all_gather(whole, stream);
      for (int root = 0; root < queue_->size(); ++root)
        if (!blocks[root].empty()) nccl.broadcast(blocks[root], root, stream);
    });
  }

  std::unique_ptr<Transfer> start_reduce_scatter(std::span<const float> partial,
                                                 std::span<const int64_t> counts,
                                                 std::span<float> mine) override {
    queue_->use(std::as_bytes(partial));
    queue_->use(std::as_bytes(mine));
    return queue_->start("reduce_scatter", "all ranks", [&](Nccl& nccl, device::Stream& stream) {
      const bool equal = std::ranges::all_of(counts, [&](int64_t n) { return n == counts[0]; });
      if (equal && counts[0] > 0) {
        for (int root = 0; root < queue_->size(); ++root) queue_->count(mine.size_bytes(), root);
        return nccl.reduce_scatter(partial, mine, stream);
      }
      int64_t begin = 0;
      for (int root = 0; root < queue_->size(); ++root) {
        const auto block = partial.subspan(begin, counts[root]);
        begin += counts[root];
        queue_->count(block.size_bytes(), root);
        if (!block.empty())
          nccl.reduce(block, root == queue_->rank() ? mine : std::span<float>(), root, stream);
      }
    });
  }

  std::unique_ptr<Transfer> start_all_reduce(std::span<float> values) override {
    const size_t share = values.size_bytes() / static_cast<size_t>(queue_->size());
    queue_->count_to_all(share);  // for the reduce-scatter
    queue_->count_to_all(share);  // for the all-gather
    queue_->use(std::as_bytes(values));
    return queue_->start("all_reduce", "all ranks", [&](Nccl& nccl, device::Stream& stream) {
      if (!values.empty()) nccl.all_reduce(values, stream);
    });
  }

  void progress() override { queue_->look(); }

 protected:
  std::shared_ptr<Queue> queue_;
};

/// Makes sums in tree order: level l adds a rank's sum and the sum of the rank that differs in bit
/// l. The groups of two are made on first use.
class PairedCollectives : public NcclCollectives {
 public:
  explicit PairedCollectives(std::shared_ptr<Queue> queue)
      : NcclCollectives(std::move(queue)), scratch_(queue_->device(), device::Memory::device) {}
  PairedCollectives(const PairedCollectives&) = delete;
  PairedCollectives& operator=(const PairedCollectives&) = delete;
  ~PairedCollectives() override {
    for (const auto& pair : pairs_) queue_->give_back(*pair);
  }

  /// At each level, a block stays with the rank of the pair that can pass it on to its owner. At
  /// level l a rank still has the blocks whose owner has the same l lowest bits.
  std::unique_ptr<Transfer> start_reduce_scatter(std::span<const float> partial,
                                                 std::span<const int64_t> counts,
                                                 std::span<float> mine) override {
    make_pairs();
    scratch_.reserve(static_cast<int64_t>(partial.size_bytes()));
    const std::span<float> sums(scratch_.as<float>(), partial.size());
    for (const auto& pair : pairs_)
      for (const auto bytes : {std::as_bytes(partial), std::as_bytes(std::span<const float>(sums)),
                               std::as_bytes(std::span<const float>(mine))})
        pair->registered.use(bytes);
    return queue_->start_groups("reduce_scatter", "all ranks", [&](device::Stream& stream) {
      for (int level = 0; level < num_levels(); ++level) {
        const int bit = 1 << level;
        Nccl& pair = *pairs_[level]->nccl;
        pair.start_group();
        int64_t begin = 0;
        for (int owner = 0; owner < queue_->size(); begin += counts[owner++]) {
          if ((owner ^ queue_->rank()) % bit != 0 || counts[owner] == 0) continue;
          const auto of_block = [&](auto values) { return values.subspan(begin, counts[owner]); };
          const std::span<const float> values = of_block(level == 0 ? partial : sums);
          const bool stays = ((owner ^ queue_->rank()) & bit) == 0;
          const bool last = level + 1 == num_levels();
          if (!stays) queue_->count(values.size_bytes(), queue_->rank() ^ bit);
          pair.reduce(values,
                      !stays ? std::span<float>()
                      : last ? mine
                             : of_block(sums),
                      owner >> level & 1, stream);
        }
        pair.end_group();
      }
    });
  }

  std::unique_ptr<Transfer> start_all_reduce(std::span<float> values) override {
    make_pairs();
    for (const auto& pair : pairs_) pair->registered.use(std::as_bytes(values));
    return queue_->start_groups("all_reduce", "all ranks", [&](device::Stream& stream) {
      if (values.empty()) return;
      for (int level = 0; level < num_levels(); ++level) {
        queue_->count(values.size_bytes(), queue_->rank() ^ 1 << level);
        Nccl& pair = *pairs_[level]->nccl;
        pair.start_group();
        pair.all_reduce(values, stream);
        pair.end_group();
      }
    });
  }

 private:
  int num_levels() const { return static_cast<int>(pairs_.size()); }
  void make_pairs() {
    PECIA_CHECK(std::has_single_bit(static_cast<unsigned>(queue_->size())),
                "a sum of {} ranks in pairs", queue_->size());
    for (int bit = 1 << num_levels(); bit < queue_->size(); bit *= 2)
      pairs_.push_back(queue_->split_part(queue_->rank() & ~bit, queue_->rank()));
  }

  std::vector<std::unique_ptr<Part>> pairs_;  ///< one per level
  device::Buffer scratch_;  ///< partial sums; safe to share, because all transfers use one stream
};

class NcclCommunicator : public CommunicatorOver {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, std::shared_ptr<Queue> queue)
      : CommunicatorOver(std::move(host)), queue_(std::move(queue)) {}

  bool on_stream() const override { return true; }
  std::string tensors_by() const override { return queue_->nccl_name(); }
  Communicator& on_host() override { return inner(); }

  std::unique_ptr<Transfer> start_send_receive(std::span<const std::byte> send, int to,
                                               std::span<std::byte> receive, int from) override {
    queue_->count(send.size(), to);
    queue_->use(send);
    queue_->use(receive);
    return queue_->start("send_receive", fmt::format("ranks {} and {}", to, from),
                         [&](Nccl& nccl, device::Stream& stream) {
                           if (!send.empty()) nccl.send(send, to, stream);
                           if (!receive.empty()) nccl.receive(receive, from, stream);
                         });
  }

  std::unique_ptr<Transfer> start_all_to_all(const Blocks& blocks) override {
    queue_->copy(blocks.send[rank()], blocks.receive[rank()]);
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      queue_->use(blocks.send[other]);
      queue_->use(blocks.receive[other]);
    }
    return queue_->start("all_to_all", "all ranks", [&](Nccl& nccl, device::Stream& stream) {
      for (int other = 0; other < size(); ++other) {
        if (other == rank()) continue;
        queue_->count(blocks.send[other].size(), other);
        if (!blocks.send[other].empty()) nccl.send(blocks.send[other], other, stream);
        if (!blocks.receive[other].empty()) nccl.receive(blocks.receive[other], other, stream);
      }
    });
  }

  std::unique_ptr<Transfer> start_exchange(const Exchange& exchange,
                                           const Operation& operation) override {
    for (const auto& message : exchange.sends) queue_->use(message.bytes);
    for (const auto& message : exchange.receives) queue_->use(message.bytes);
    return queue_->start(operation.name, exchange.peers(), [&](Nccl& nccl, device::Stream& stream) {
      for (const auto& [bytes, to] : exchange.sends) {
        queue_->count(bytes.size(), to);
        if (!bytes.empty()) nccl.send(bytes, to, stream);
      }
      for (const auto& [bytes, from] : exchange.receives)
        if (!bytes.empty()) nccl.receive(bytes, from, stream);
    });
  }

  std::unique_ptr<Communicator> by_way_of_host(std::unique_ptr<Communicator> host) const override {
    return make_staged_communicator(std::move(host), queue_->device(), queue_->computing());
  }

  std::unique_ptr<Collectives> make_collectives(std::vector<int>, SumOrder order) override {
    if (order == SumOrder::tree && size() > 2) return std::make_unique<PairedCollectives>(queue_);
    return std::make_unique<NcclCollectives>(queue_);
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    auto part = inner().split(color, key);
    auto queue = queue_->split(color, key, part->rank(), part->size());
    return std::make_unique<NcclCommunicator>(std::move(part), std::move(queue));
  }
  std::unique_ptr<Communicator> split_by_host() override {
    auto host = inner().split_by_host();
    // The lowest rank on the host, in this group, is the host's color.
    const int64_t mine = rank();
    const int64_t lowest = -host->all_reduce_max(-mine);
    auto queue = queue_->split(static_cast<int>(lowest), rank(), host->rank(), host->size());
    return std::make_unique<NcclCommunicator>(std::move(host), std::move(queue));
  }

  bool progress() override {
    const bool looked = queue_->look();
    return inner().progress() || looked;
  }
  void set_places(const std::vector<RackServerGpu>& by_rank) override {
    inner().set_places(by_rank);
    queue_->set_places(by_rank);
  }
  Traffic traffic() const override { return queue_->traffic(); }

 private:
  std::shared_ptr<Queue> queue_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host,
                                                     std::unique_ptr<Nccl> nccl,
                                                     device::Device& device, device::Stream& stream,
                                                     CallWatch::Late late) {
  const int rank = host->rank(), size = host->size();
  auto watch = std::make_shared<Watch>(host->wait_timeout(), std::move(late));
  auto queue = std::make_shared<Queue>(std::move(nccl), device, stream,
                                       std::shared_ptr<device::Stream>(device.make_stream()),
                                       std::move(watch), rank, size);
  return std::make_unique<NcclCommunicator>(std::move(host), std::move(queue));
}

}  // namespace pecia::comm
