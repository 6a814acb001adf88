// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/nccl_communicator.hpp"

#include <algorithm>
#include <bit>

#include "lib/base/core/error.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/ranks/comm/collectives.hpp"
#include "lib/ranks/comm/communicator_over.hpp"
#include "lib/ranks/comm/nccl_watch.hpp"
#include "lib/ranks/comm/registered_blocks.hpp"
#include "lib/ranks/comm/staged_communicator.hpp"
#include "lib/ranks/comm/traffic_meter.hpp"

namespace pecia::comm {
namespace {

/// A part of a group for some of its calls only, and the blocks registered with it.
struct Part {
  Part(std::unique_ptr<Nccl> group, device::Device& device, device::Stream& computing,
       device::Stream& sending)
      : nccl(std::move(group)), registered(*nccl, device, computing, sending) {}

  std::unique_ptr<Nccl> nccl;
  RegisteredBlocks registered;
};

/// Enqueues the operations of a group and its collectives.
class Queue {
 public:
  Queue(std::unique_ptr<Nccl> nccl, device::Device& device, device::Stream& computing,
        std::shared_ptr<device::Stream> sending, std::shared_ptr<NcclWatch> watch, int rank,
        int size)
      : nccl_(std::move(nccl)),
        device_(device),
        computing_(computing),
        sending_(std::move(sending)),
        watch_(std::move(watch)),
        registered_(*nccl_, device, computing_, *sending_),
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
    watch_->poll();
    ready_->record(computing_);
    ready_->make_wait(*sending_);
    ++number_;
    {
      const CallWatch::Call call = watch_->calls().begin(operation, number_, peers);
      groups(*sending_);
    }
    std::shared_ptr<device::Event> done = watch_->event(device_);
    done->record(*sending_);
    watch_->add({operation, number_, std::move(peers), done, NcclWatch::Clock::now()});
    return std::make_unique<OnStream>(std::move(done), computing_);
  }

  /// The number of the operation that is started last.
  int64_t number() const { return number_; }
  /// An operation of that number on this memory is held back by the computing stream (StepRanks).
  void held_back(int64_t number, const std::vector<std::span<const std::byte>>& memory) {
    number_ = number;
    for (const auto& bytes : memory) registered_.put_in_graph(bytes);
  }
  NcclWatch& watch() const { return *watch_; }
  Nccl& nccl() const { return *nccl_; }

  /// Copies after the work that the computing stream holds, like any transfer.
  void copy(std::span<const std::byte> from, std::span<std::byte> to) {
    PECIA_CHECK(from.size() == to.size(), "a rank's block for itself: {} and {} bytes", from.size(),
                to.size());
    if (from.empty()) return;
    device_.copy(to.data(), from.data(), static_cast<int64_t>(from.size()), computing_);
  }

  void count(size_t bytes, int to) { traffic_.count(static_cast<int64_t>(bytes), to); }
  void count_to_all(size_t bytes) {
    for (int to = 0; to < size_; ++to) count(bytes, to);
  }
  void set_places(const std::vector<RackServerGpu>& by_rank) { traffic_.set_places(by_rank); }
  const Traffic& traffic() const { return traffic_.traffic(); }

  bool poll() { return watch_->poll(); }
  device::Device& device() const { return device_; }
  device::Stream& computing() const { return computing_; }
  /// Makes a part that is watched like the group itself.
  std::unique_ptr<Part> split_part(int color, int key) const {
    auto part = std::make_unique<Part>(split_nccl(color, key), device_, computing_, *sending_);
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
  std::shared_ptr<NcclWatch> watch_;
  RegisteredBlocks registered_;
  std::unique_ptr<device::Event> ready_;
  int rank_, size_;
  int64_t number_ = 0;
  TrafficMeter traffic_;
};

/// The group's ranks as those of works in a step's graphs. They are enqueued on the computing stream
/// itself: a step's rows are one block, so little could be computed beside them.
class StepRanks : public device::JointRanks {
 public:
  using Memory = std::vector<std::span<const std::byte>>;

  /// `host` has the ranks of the queue's group, and outlives this object. As ranks may agree at
  /// different works of a step, no other collective of `host` may be called within a step.
  StepRanks(std::shared_ptr<Queue> queue, Communicator& host)
      : queue_(std::move(queue)), host_(host) {}
  StepRanks(const StepRanks&) = delete;
  StepRanks& operator=(const StepRanks&) = delete;
  /// NCCL's groups do not end while there are graphs with their operations.
  ~StepRanks() override {
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

  std::shared_ptr<Queue> queue_;
  Communicator& host_;
  const std::string peers_ = "all ranks";
  std::shared_ptr<Launch> launch_;
  const char* operation_ = "";       ///< the first of those since the last launch
  int64_t first_ = 0, pending_ = 0;  ///< its number, and how many these are
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
  NcclCollectives(std::shared_ptr<Queue> queue, std::shared_ptr<StepRanks> step_ranks)
      : queue_(std::move(queue)), step_ranks_(std::move(step_ranks)) {}

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

  std::unique_ptr<Transfer> start_reduce_scatter(Addends partial, std::span<const int64_t> counts,
                                                 Addends mine) override {
    queue_->use(partial.bytes());
    queue_->use(mine.bytes());
    return queue_->start("reduce_scatter", "all ranks", [&](Nccl& nccl, device::Stream& stream) {
      const bool equal = std::ranges::all_of(counts, [&](int64_t n) { return n == counts[0]; });
      if (equal && counts[0] > 0) {
        for (int root = 0; root < queue_->size(); ++root) queue_->count(mine.bytes().size(), root);
        return nccl.reduce_scatter(partial, mine, stream);
      }
      int64_t begin = 0;
      for (int root = 0; root < queue_->size(); ++root) {
        const Addends block = partial.part(begin, counts[root]);
        begin += counts[root];
        queue_->count(block.bytes().size(), root);
        if (!block.empty())
          nccl.reduce(block, root == queue_->rank() ? mine : Addends(), root, stream);
      }
    });
  }

  std::unique_ptr<Transfer> start_all_reduce(Addends values) override {
    count_all_reduce(values);
    queue_->use(values.bytes());
    return queue_->start("all_reduce", "all ranks", [&](Nccl& nccl, device::Stream& stream) {
      if (!values.empty()) nccl.all_reduce(values, stream);
    });
  }

  std::unique_ptr<Transfer> start_all_reduce_in_step(Addends values) override {
    if (values.empty()) return start_all_reduce(values);
    queue_->use(values.bytes());
    auto transfer = step_ranks_->start(
        "all_reduce",
        fmt::format("all_reduce of {}{}", values.count(),
                    values.dtype() == DType::fp32 ? "" : " bf16"),
        {values.bytes()},
        [values](Nccl& nccl, device::Stream& stream) { nccl.all_reduce(values, stream); });
    if (transfer == nullptr) return start_all_reduce(values);
    count_all_reduce(values);
    return transfer;
  }

  void progress() override { queue_->poll(); }

 protected:
  std::shared_ptr<Queue> queue_;

 private:
  void count_all_reduce(const Addends& values) {
    const size_t share = values.bytes().size() / static_cast<size_t>(queue_->size());
    queue_->count_to_all(share);  // for the reduce-scatter
    queue_->count_to_all(share);  // for the all-gather
  }

  std::shared_ptr<StepRanks> step_ranks_;
};

/// Makes sums in tree order: level l adds a rank's sum and the sum of the rank that differs in bit
/// l. The groups of two are made on first use. Their sums are never in a step's graphs, since NCCL
/// warns of deadlocks where graphs have several groups.
class PairedCollectives : public NcclCollectives {
 public:
  PairedCollectives(std::shared_ptr<Queue> queue, std::shared_ptr<StepRanks> step_ranks)
      : NcclCollectives(std::move(queue), std::move(step_ranks)),
        scratch_(queue_->device(), device::Memory::device) {}
  PairedCollectives(const PairedCollectives&) = delete;
  PairedCollectives& operator=(const PairedCollectives&) = delete;
  ~PairedCollectives() override {
    for (const auto& pair : pairs_) queue_->give_back(*pair);
  }

  /// At each level, a block stays with the rank of the pair that can pass it on to its owner. At
  /// level l a rank still has the blocks whose owner has the same l lowest bits.
  std::unique_ptr<Transfer> start_reduce_scatter(Addends partial, std::span<const int64_t> counts,
                                                 Addends mine) override {
    make_pairs();
    scratch_.reserve(std::ssize(partial.bytes()));
    const Addends sums(scratch_.data(), partial.dtype(), partial.count());
    for (const auto& pair : pairs_)
      for (const Addends& used : {partial, sums, mine}) pair->registered.use(used.bytes());
    return queue_->start_groups("reduce_scatter", "all ranks", [&](device::Stream& stream) {
      for (int level = 0; level < num_levels(); ++level) {
        const int bit = 1 << level;
        Nccl& pair = *pairs_[level]->nccl;
        pair.start_group();
        int64_t begin = 0;
        for (int owner = 0; owner < queue_->size(); begin += counts[owner++]) {
          if ((owner ^ queue_->rank()) % bit != 0 || counts[owner] == 0) continue;
          const auto of_block = [&](const Addends& all) { return all.part(begin, counts[owner]); };
          const Addends values = of_block(level == 0 ? partial : sums);
          const bool stays = ((owner ^ queue_->rank()) & bit) == 0;
          const bool last = level + 1 == num_levels();
          if (!stays) queue_->count(values.bytes().size(), queue_->rank() ^ bit);
          pair.reduce(values,
                      !stays ? Addends()
                      : last ? mine
                             : of_block(sums),
                      owner >> level & 1, stream);
        }
        pair.end_group();
      }
    });
  }

  std::unique_ptr<Transfer> start_all_reduce(Addends values) override {
    make_pairs();
    for (const auto& pair : pairs_) pair->registered.use(values.bytes());
    return queue_->start_groups("all_reduce", "all ranks", [&](device::Stream& stream) {
      if (values.empty()) return;
      for (int level = 0; level < num_levels(); ++level) {
        queue_->count(values.bytes().size(), queue_->rank() ^ 1 << level);
        Nccl& pair = *pairs_[level]->nccl;
        pair.start_group();
        pair.all_reduce(values, stream);
        pair.end_group();
      }
    });
  }

  std::unique_ptr<Transfer> start_all_reduce_in_step(Addends values) override {
    return start_all_reduce(values);
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
      : CommunicatorOver(std::move(host)),
        queue_(std::move(queue)),
        step_ranks_(std::make_shared<StepRanks>(queue_, inner())) {}

  bool on_stream() const override { return true; }
  std::string tensors_by() const override { return queue_->nccl_name(); }
  Communicator& on_host() override { return inner(); }

  std::unique_ptr<Transfer> start_send_receive(std::span<const std::byte> send, int to,
                                               std::span<std::byte> receive, int from) override {
    queue_->count(send.size(), to);
    queue_->use(send);
    queue_->use(receive);
    return queue_->start("send_receive", fmt::format("ranks {} and {}", to, from),
                         send_receive(send, to, receive, from));
  }
  std::unique_ptr<Transfer> start_send_receive_in_step(std::span<const std::byte> send, int to,
                                                       std::span<std::byte> receive,
                                                       int from) override {
    queue_->use(send);
    queue_->use(receive);
    auto transfer = step_ranks_->start("send_receive", "send_receive", {send, receive},
                                       send_receive(send, to, receive, from));
    if (transfer == nullptr) return start_send_receive(send, to, receive, from);
    queue_->count(send.size(), to);
    return transfer;
  }

  std::unique_ptr<Transfer> start_all_to_all(const Blocks& blocks) override {
    use(blocks);
    queue_->copy(blocks.send[rank()], blocks.receive[rank()]);
    count(blocks);
    return queue_->start("all_to_all", "all ranks", all_to_all(blocks));
  }
  std::unique_ptr<Transfer> start_all_to_all_in_step(const Blocks& blocks) override {
    use(blocks);
    StepRanks::Memory memory(blocks.send.begin(), blocks.send.end());
    memory.insert(memory.end(), blocks.receive.begin(), blocks.receive.end());
    auto transfer =
        step_ranks_->start("all_to_all", "all_to_all", std::move(memory), all_to_all(blocks));
    if (transfer == nullptr) return start_all_to_all(blocks);
    queue_->copy(blocks.send[rank()], blocks.receive[rank()]);
    count(blocks);
    return transfer;
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
    if (order == SumOrder::tree && size() > 2)
      return std::make_unique<PairedCollectives>(queue_, step_ranks_);
    return std::make_unique<NcclCollectives>(queue_, step_ranks_);
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
    const bool looked = queue_->poll();
    return inner().progress() || looked;
  }
  void set_places(const std::vector<RackServerGpu>& by_rank) override {
    inner().set_places(by_rank);
    queue_->set_places(by_rank);
  }
  /// Also of what travels from host to host (on_host), such as shortlists of a cut vocabulary.
  Traffic traffic() const override {
    Traffic sum = queue_->traffic();
    return sum += inner().traffic();
  }

 private:
  using Calls = std::function<void(Nccl& nccl, device::Stream& stream)>;

  static Calls send_receive(std::span<const std::byte> send, int to, std::span<std::byte> receive,
                            int from) {
    return [=](Nccl& nccl, device::Stream& stream) {
      if (!send.empty()) nccl.send(send, to, stream);
      if (!receive.empty()) nccl.receive(receive, from, stream);
    };
  }
  Calls all_to_all(const Blocks& blocks) const {
    return [blocks, own = rank(), ranks = size()](Nccl& nccl, device::Stream& stream) {
      for (int other = 0; other < ranks; ++other) {
        if (other == own) continue;
        if (!blocks.send[other].empty()) nccl.send(blocks.send[other], other, stream);
        if (!blocks.receive[other].empty()) nccl.receive(blocks.receive[other], other, stream);
      }
    };
  }
  void use(const Blocks& blocks) {
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      queue_->use(blocks.send[other]);
      queue_->use(blocks.receive[other]);
    }
  }
  void count(const Blocks& blocks) {
    for (int other = 0; other < size(); ++other)
      if (other != rank()) queue_->count(blocks.send[other].size(), other);
  }

  std::shared_ptr<Queue> queue_;
  std::shared_ptr<StepRanks> step_ranks_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host,
                                                     std::unique_ptr<Nccl> nccl,
                                                     device::Device& device, device::Stream& stream,
                                                     CallWatch::Late late) {
  const int rank = host->rank(), size = host->size();
  auto watch = std::make_shared<NcclWatch>(host->wait_timeout(), stream, std::move(late));
  auto queue = std::make_shared<Queue>(std::move(nccl), device, stream,
                                       std::shared_ptr<device::Stream>(device.make_stream()),
                                       std::move(watch), rank, size);
  return std::make_unique<NcclCommunicator>(std::move(host), std::move(queue));
}

}  // namespace pecia::comm
