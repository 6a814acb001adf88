// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/staged_communicator.hpp"

#include <deque>

#include "lib/base/device/buffer.hpp"
#include "lib/ranks/comm/collectives.hpp"
#include "lib/ranks/comm/communicator_over.hpp"

namespace pecia::comm {
namespace {

using device::Buffer;
using device::Memory;

/// Blocks of pinned memory. Each belongs to one transfer at a time.
class Stage {
 public:
  struct Block {
    Block(device::Device& device) : memory(device, Memory::pinned), left(device.make_event()) {}
    std::span<std::byte> bytes() const {
      return {memory.as<std::byte>(), static_cast<size_t>(size)};
    }
    Buffer memory;
    std::unique_ptr<device::Event> left;  ///< recorded after the stream's last copy of this block
    int64_t size = 0;
    bool taken = false;
  };

  Stage(device::Device& device, device::Stream& stream) : device_(device), stream_(stream) {}

  Block& take(size_t size) {
    Block* block = nullptr;
    for (Block& one : blocks_)
      if (!one.taken && (block == nullptr || one.memory.bytes() > block->memory.bytes()))
        block = &one;
    if (block == nullptr) block = &blocks_.emplace_back(device_);
    block->left->synchronize();
    block->memory.reserve(static_cast<int64_t>(size));
    block->size = static_cast<int64_t>(size);
    block->taken = true;
    return *block;
  }
  void give_back(Block& block) {
    block.left->record(stream_);
    block.taken = false;
  }

  void copy(void* to, const void* from, size_t bytes) {
    device_.copy(to, from, static_cast<int64_t>(bytes), stream_);
  }
  /// Waits for the stream: copies to pinned memory are then complete.
  void synchronize() { stream_.synchronize(); }

 private:
  device::Device& device_;
  device::Stream& stream_;
  std::deque<Block> blocks_;
};

/// A transfer of pinned memory with the places of its parts on the device. If it is destroyed
/// unfinished, it keeps its block forever, because messages may still arrive there.
class StagedTransfer : public Transfer {
 public:
  struct Part {
    const std::byte* from;
    std::span<std::byte> to;
  };

  StagedTransfer(Stage& stage, Stage::Block& block, std::vector<Part> parts,
                 std::unique_ptr<Transfer> inner)
      : stage_(stage), block_(block), parts_(std::move(parts)), inner_(std::move(inner)) {}

  bool test() override {
    if (done_) return true;
    if (!inner_->test()) return false;
    finish();
    return true;
  }
  void wait() override {
    if (done_) return;
    inner_->wait();
    finish();
  }

 private:
  void finish() {
    for (const Part& part : parts_) stage_.copy(part.to.data(), part.from, part.to.size());
    stage_.give_back(block_);
    done_ = true;
  }

  Stage& stage_;
  Stage::Block& block_;
  std::vector<Part> parts_;
  std::unique_ptr<Transfer> inner_;
  bool done_ = false;
};

/// Lays messages out in one block.
class Layout {
 public:
  Layout(Stage& stage, size_t size) : stage_(stage), block_(stage.take(size)) {}

  /// Copies `bytes` to the block; the copy is complete after the stage's synchronize.
  std::span<std::byte> send(std::span<const std::byte> bytes) {
    const auto place = next(bytes.size());
    stage_.copy(place.data(), bytes.data(), bytes.size());
    return place;
  }
  /// The place in the block for bytes that are to arrive in `bytes`.
  std::span<std::byte> receive(std::span<std::byte> bytes) {
    const auto place = next(bytes.size());
    parts_.push_back({place.data(), bytes});
    return place;
  }
  /// Copies `bytes` to the block as `send` does; afterwards they are copied back from it.
  std::span<std::byte> exchange(std::span<std::byte> bytes) {
    const auto place = send(bytes);
    parts_.push_back({place.data(), bytes});
    return place;
  }
  std::unique_ptr<Transfer> transfer(std::unique_ptr<Transfer> inner) {
    return std::make_unique<StagedTransfer>(stage_, block_, std::move(parts_), std::move(inner));
  }

 private:
  std::span<std::byte> next(size_t size) {
    const auto place = block_.bytes().subspan(used_, size);
    used_ += size;
    return place;
  }

  Stage& stage_;
  Stage::Block& block_;
  size_t used_ = 0;
  std::vector<StagedTransfer::Part> parts_;
};

class StagedCollectives : public Collectives {
 public:
  StagedCollectives(Stage& stage, std::unique_ptr<Collectives> inner, int rank)
      : stage_(stage), inner_(std::move(inner)), rank_(rank) {}

  Route route() const override { return inner_->route(); }

  std::unique_ptr<Transfer> start_all_gather(std::vector<std::span<std::byte>> blocks) override {
    size_t size = 0;
    for (const auto& block : blocks) size += block.size();
    Layout layout(stage_, size);
    for (size_t rank = 0; rank < blocks.size(); ++rank)
      blocks[rank] = static_cast<int>(rank) == rank_ ? layout.send(blocks[rank])
                                                     : layout.receive(blocks[rank]);
    stage_.synchronize();
    return layout.transfer(inner_->start_all_gather(std::move(blocks)));
  }

  std::unique_ptr<Transfer> start_reduce_scatter(Addends partial, std::span<const int64_t> counts,
                                                 Addends mine) override {
    Layout layout(stage_, partial.bytes().size() + mine.bytes().size());
    const Addends values(layout.send(partial.bytes()).data(), partial.dtype(), partial.count());
    const Addends sum(layout.receive(mine.bytes()).data(), mine.dtype(), mine.count());
    stage_.synchronize();
    return layout.transfer(inner_->start_reduce_scatter(values, counts, sum));
  }

  std::unique_ptr<Transfer> start_all_reduce(Addends values) override {
    Layout layout(stage_, values.bytes().size());
    const Addends place(layout.exchange(values.bytes()).data(), values.dtype(), values.count());
    stage_.synchronize();
    return layout.transfer(inner_->start_all_reduce(place));
  }

  void progress() override { inner_->progress(); }

 private:
  Stage& stage_;
  std::unique_ptr<Collectives> inner_;
  int rank_;
};

class StagedCommunicator : public CommunicatorOver {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host, device::Device& device,
                     device::Stream& stream)
      : CommunicatorOver(std::move(host)),
        device_(device),
        stream_(stream),
        stage_(device, stream) {}

  std::string tensors_by() const override { return "the host"; }
  Communicator& on_host() override { return inner(); }

  std::unique_ptr<Transfer> start_send_receive(std::span<const std::byte> send, int to,
                                               std::span<std::byte> receive, int from) override {
    Layout layout(stage_, send.size() + receive.size());
    const auto sent = layout.send(send), received = layout.receive(receive);
    stage_.synchronize();
    return layout.transfer(inner().start_send_receive(sent, to, received, from));
  }

  std::unique_ptr<Transfer> start_all_to_all(const Blocks& blocks) override {
    size_t size = 0;
    for (const auto& block : blocks.send) size += block.size();
    for (const auto& block : blocks.receive) size += block.size();
    Layout layout(stage_, size);
    Blocks staged;
    for (const auto& block : blocks.send) staged.send.push_back(layout.send(block));
    for (const auto& block : blocks.receive) staged.receive.push_back(layout.receive(block));
    stage_.synchronize();
    return layout.transfer(inner().start_all_to_all(staged));
  }

  std::unique_ptr<Transfer> start_exchange(const Exchange& exchange,
                                           const Operation& operation) override {
    size_t size = 0;
    for (const auto& message : exchange.sends) size += message.bytes.size();
    for (const auto& message : exchange.receives) size += message.bytes.size();
    Layout layout(stage_, size);
    Exchange staged;
    for (const auto& [bytes, to] : exchange.sends) staged.sends.push_back({layout.send(bytes), to});
    for (const auto& [bytes, from] : exchange.receives)
      staged.receives.push_back({layout.receive(bytes), from});
    stage_.synchronize();
    return layout.transfer(inner().start_exchange(staged, operation));
  }

  std::unique_ptr<Collectives> make_collectives(const RankLabels& labels, SumOrder order) override {
    return std::make_unique<StagedCollectives>(stage_, inner().make_collectives(labels, order),
                                               rank());
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    return make_staged_communicator(inner().split(color, key), device_, stream_);
  }
  std::unique_ptr<Communicator> split_by_host() override {
    return make_staged_communicator(inner().split_by_host(), device_, stream_);
  }

 private:
  device::Device& device_;
  device::Stream& stream_;
  Stage stage_;
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host,
                                                       device::Device& device,
                                                       device::Stream& stream) {
  return std::make_unique<StagedCommunicator>(std::move(host), device, stream);
}

}  // namespace pecia::comm
