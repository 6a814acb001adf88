// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/nccl_communicator.hpp"

#include "lib/ranks/comm/communicator_over.hpp"
#include "lib/ranks/comm/nccl_paired_collectives.hpp"
#include "lib/ranks/comm/nccl_server_collectives.hpp"
#include "lib/ranks/comm/nccl_step_ranks.hpp"
#include "lib/ranks/comm/server_map.hpp"
#include "lib/ranks/comm/staged_communicator.hpp"

namespace pecia::comm {
namespace {

/// Sums in one shot that are watched with a group, and end with it.
std::shared_ptr<OneShot> watched(std::unique_ptr<OneShot> sums, std::shared_ptr<NcclQueue> queue) {
  queue->watch().add(*sums);
  return {sums.release(), [queue = std::move(queue)](OneShot* ended) {
            queue->watch().remove(*ended);
            delete ended;
          }};
}

class NcclCommunicator : public CommunicatorOver {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, std::shared_ptr<NcclQueue> queue)
      : CommunicatorOver(std::move(host)),
        queue_(std::move(queue)),
        step_ranks_(std::make_shared<NcclStepRanks>(queue_, inner())) {}

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
    NcclStepRanks::Memory memory(blocks.send.begin(), blocks.send.end());
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

  std::unique_ptr<Collectives> make_collectives(const RankLabels& labels, SumOrder order) override {
    if (order == SumOrder::tree && size() > 2)
      return std::make_unique<NcclPairedCollectives>(queue_, step_ranks_, labels);
    const ServerMap servers(labels.servers);
    if (least_block_ && servers.is_regular() && servers.num_servers() > 1 &&
        servers.num_servers() < size())
      return std::make_unique<NcclServerCollectives>(queue_, step_ranks_, labels, *least_block_);
    return std::make_unique<NcclCollectives>(queue_, step_ranks_, labels, one_shot_);
  }
  void set_least_block_by_servers(int64_t bytes) override { least_block_ = bytes; }
  std::string find_one_shot(int64_t most_bytes) override {
    FoundOneShot found = queue_->nccl().find_one_shot(inner(), queue_->device(), most_bytes);
    if (found.sums != nullptr) one_shot_ = watched(std::move(found.sums), queue_);
    return found.why_not;
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

  std::shared_ptr<NcclQueue> queue_;
  std::shared_ptr<NcclStepRanks> step_ranks_;
  std::optional<int64_t> least_block_;  ///< absent: gathers and scatters are NCCL's own
  std::shared_ptr<OneShot> one_shot_;   ///< null: sums are NCCL's own
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host,
                                                     std::unique_ptr<Nccl> nccl,
                                                     device::Device& device, device::Stream& stream,
                                                     CallWatch::Late late) {
  const int rank = host->rank(), size = host->size();
  auto watch = std::make_shared<NcclWatch>(host->wait_timeout(), stream, std::move(late));
  auto queue = std::make_shared<NcclQueue>(std::move(nccl), device, stream,
                                           std::shared_ptr<device::Stream>(device.make_stream()),
                                           std::move(watch), rank, size);
  return std::make_unique<NcclCommunicator>(std::move(host), std::move(queue));
}

}  // namespace pecia::comm
