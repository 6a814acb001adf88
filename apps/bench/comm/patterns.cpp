// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/comm/patterns.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::bench {
namespace {

class SendReceive : public Pattern {
 public:
  SendReceive(comm::Communicator& world, int64_t bytes)
      : world_(world),
        right_((world.rank() + 1) % world.size()),
        left_((world.rank() + world.size() - 1) % world.size()),
        sent_(payload(world.rank(), bytes)),
        received_(bytes) {}

  std::string_view name() const override { return "send_receive"; }
  void run() override { world_.start_send_receive(sent_, right_, received_, left_)->wait(); }
  int64_t bytes() const override { return static_cast<int64_t>(sent_.size()); }
  std::string problem() const override { return payload_problem(received_, left_); }

 private:
  comm::Communicator& world_;
  int right_, left_;
  std::vector<std::byte> sent_, received_;
};

class AllToAll : public Pattern {
 public:
  AllToAll(comm::Communicator& world, int64_t bytes) : world_(world) {
    const int64_t block = bytes / world.size();
    for (int rank = 0; rank < world.size(); ++rank) {
      sent_.push_back(payload(world.rank(), block));
      received_.emplace_back(block);
    }
    for (int rank = 0; rank < world.size(); ++rank) {
      blocks_.send.emplace_back(sent_[rank]);
      blocks_.receive.emplace_back(received_[rank]);
    }
  }

  std::string_view name() const override { return "all_to_all"; }
  void run() override { world_.start_all_to_all(blocks_)->wait(); }
  int64_t bytes() const override {
    return static_cast<int64_t>(sent_.front().size()) * (world_.size() - 1);
  }
  std::string problem() const override {
    std::string found;
    for (int rank = 0; rank < world_.size() && found.empty(); ++rank)
      found = payload_problem(received_[rank], rank);
    return found;
  }

 private:
  comm::Communicator& world_;
  std::vector<std::vector<std::byte>> sent_, received_;
  comm::Blocks blocks_;
};

class Broadcast : public Pattern {
 public:
  Broadcast(comm::Communicator& world, int64_t bytes)
      : world_(world),
        bytes_(bytes),
        message_(world.rank() == root ? payload(root, bytes) : std::vector<std::byte>()) {}

  std::string_view name() const override { return "broadcast"; }
  void run() override { world_.broadcast(message_, root); }
  int64_t bytes() const override { return bytes_; }
  std::string problem() const override {
    if (static_cast<int64_t>(message_.size()) != bytes_)
      return fmt::format("broadcast: {} bytes, expected {}", message_.size(), bytes_);
    return payload_problem(message_, root);
  }

 private:
  static constexpr int root = 0;
  comm::Communicator& world_;
  int64_t bytes_;
  std::vector<std::byte> message_;
};

class AllGather : public Pattern {
 public:
  AllGather(comm::Communicator& world, int64_t bytes)
      : world_(world), mine_(payload(world.rank(), bytes / world.size())) {}

  std::string_view name() const override { return "all_gather"; }
  void run() override { all_ = world_.all_gather(mine_); }
  int64_t bytes() const override {
    return static_cast<int64_t>(mine_.size()) * (world_.size() - 1);
  }
  std::string problem() const override {
    if (static_cast<int>(all_.size()) != world_.size())
      return fmt::format("all_gather: parts of {} ranks, expected {}", all_.size(), world_.size());
    std::string found;
    for (int rank = 0; rank < world_.size() && found.empty(); ++rank)
      found = all_[rank].size() == mine_.size()
                  ? payload_problem(all_[rank], rank)
                  : fmt::format("all_gather: {} bytes of rank {}, expected {}", all_[rank].size(),
                                rank, mine_.size());
    return found;
  }

 private:
  comm::Communicator& world_;
  std::vector<std::byte> mine_;
  std::vector<std::vector<std::byte>> all_;
};

}  // namespace

std::byte payload_byte(int rank, int64_t index) {
  return static_cast<std::byte>((index * 31 + (index >> 8) * 17 + rank * 101 + 1) & 0xff);
}

std::vector<std::byte> payload(int rank, int64_t bytes) {
  std::vector<std::byte> message(bytes);
  for (int64_t i = 0; i < bytes; ++i) message[i] = payload_byte(rank, i);
  return message;
}

std::string payload_problem(std::span<const std::byte> got, int rank) {
  for (size_t i = 0; i < got.size(); ++i)
    if (got[i] != payload_byte(rank, static_cast<int64_t>(i)))
      return fmt::format("byte {} of {} from rank {} is {}, expected {}", i, got.size(), rank,
                         static_cast<int>(got[i]),
                         static_cast<int>(payload_byte(rank, static_cast<int64_t>(i))));
  return "";
}

std::unique_ptr<Pattern> make_send_receive(comm::Communicator& world, int64_t bytes) {
  return std::make_unique<SendReceive>(world, bytes);
}
std::unique_ptr<Pattern> make_all_to_all(comm::Communicator& world, int64_t bytes) {
  return std::make_unique<AllToAll>(world, bytes);
}
std::unique_ptr<Pattern> make_broadcast(comm::Communicator& world, int64_t bytes) {
  return std::make_unique<Broadcast>(world, bytes);
}
std::unique_ptr<Pattern> make_all_gather(comm::Communicator& world, int64_t bytes) {
  return std::make_unique<AllGather>(world, bytes);
}

}  // namespace pecia::bench
