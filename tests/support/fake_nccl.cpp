// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_nccl.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/collectives.hpp"
#include "tests/support/late_stream.hpp"

namespace pecia::test {
namespace {

/// A group's, by the address after their end.
using Registered = std::map<const std::byte*, const std::byte*>;

class OfBlock : public comm::Nccl::Registration {
 public:
  OfBlock(Registered& registered, std::span<std::byte> block)
      : registered_(registered), end_(block.data() + block.size()) {
    PECIA_CHECK(registered_.emplace(end_, block.data()).second, "a block registered twice");
  }
  OfBlock(const OfBlock&) = delete;
  OfBlock& operator=(const OfBlock&) = delete;
  ~OfBlock() override { registered_.erase(end_); }

 private:
  Registered& registered_;
  const std::byte* end_;
};

/// Sums in the order of FakeNccl's, so that steps have the same bits with and without graphs. The
/// order of ranks is tested with the kernel (test_one_shot.cpp).
class FakeOneShot : public comm::OneShot {
 public:
  /// `host` has the ranks in the order of sums.
  FakeOneShot(std::unique_ptr<comm::Communicator> host, int64_t most_bytes)
      : host_(std::move(host)),
        collectives_(
            host_->make_collectives(std::vector<int>(host_->size(), 0), comm::SumOrder::tree)),
        most_bytes_(most_bytes) {}
  int64_t most_bytes() const override { return most_bytes_; }
  void all_reduce(const comm::Addends& values, device::Stream& stream) override {
    submit(stream, [this, values] { collectives_->start_all_reduce(values)->wait(); });
  }
  std::string asynchronous_error() override { return ""; }
  void abort() noexcept override {}

 private:
  std::unique_ptr<comm::Communicator> host_;
  std::unique_ptr<comm::Collectives> collectives_;
  int64_t most_bytes_;
};

class FakeNccl : public comm::Nccl {
 public:
  FakeNccl(std::unique_ptr<comm::Communicator> host, SumsOf sums)
      : host_(std::move(host)),
        sums_(sums),
        for_sums_(host_->split(0, place_in_sums(host_->rank()))),
        collectives_(for_sums_->make_collectives(std::vector<int>(host_->size(), 0),
                                                 comm::SumOrder::tree)) {}

  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;
  ~FakeNccl() override {
    if (registered_.empty()) return;
    fmt::print(stderr, "a group of NCCL goes before what it has registered\n");
    std::abort();
  }

  void start_group() override {
    PECIA_CHECK(!in_group_, "a group in a group");
    in_group_ = true;
  }
  void end_group() override {
    PECIA_CHECK(in_group_, "the end of no group");
    in_group_ = false;
    if (!messages_.empty())
      calls_.push_back([this, messages = std::exchange(messages_, {})] {
        std::vector<std::unique_ptr<comm::Transfer>> transfers;
        for (const auto& [exchange, number] : messages) {
          for (const auto& message : exchange.sends) require_registered(message.bytes);
          for (const auto& message : exchange.receives) require_registered(message.bytes);
          transfers.push_back(host_->start_exchange(exchange, {"fake_nccl", number}));
        }
        for (const auto& transfer : transfers) transfer->wait();
      });
    if (calls_.empty()) return;
    submit(*stream_, [calls = std::exchange(calls_, {})] {
      for (const auto& call : calls) call();
    });
  }

  void send(std::span<const std::byte> bytes, int to, device::Stream& stream) override {
    on(stream);
    messages_.push_back({{.sends = {{bytes, to}}, .receives = {}}, ++sent_[to]});
  }
  void receive(std::span<std::byte> bytes, int from, device::Stream& stream) override {
    on(stream);
    messages_.push_back({{.sends = {}, .receives = {{bytes, from}}}, ++received_[from]});
  }
  void broadcast(std::span<std::byte> bytes, int root, device::Stream& stream) override {
    on(stream);
    calls_.push_back([=, this] {
      require_registered(bytes);
      std::vector<std::byte> copy(bytes.begin(), bytes.end());
      host_->broadcast(copy, root);
      PECIA_CHECK(copy.size() == bytes.size(), "{} bytes of rank {} for {}", copy.size(), root,
                  bytes.size());
      std::copy(copy.begin(), copy.end(), bytes.begin());
    });
  }
  void reduce(const comm::Addends& values, const comm::Addends& sum, int root,
              device::Stream& stream) override {
    on(stream);
    calls_.push_back([=, this] {
      require_registered(values.bytes());
      require_registered(sum.bytes());
      std::vector<int64_t> counts(host_->size(), 0);
      counts[place_in_sums(root)] = values.count();
      const comm::Addends nothing(nullptr, values.dtype(), 0);
      collectives_->start_reduce_scatter(values, counts, sum.empty() ? nothing : sum)->wait();
    });
  }
  void all_reduce(const comm::Addends& values, device::Stream& stream) override {
    on(stream);
    calls_.push_back([=, this, capture = capture_on(stream)] {
      require_registered(values.bytes());
      require_of_all_ranks(capture);
      collectives_->start_all_reduce(values)->wait();
    });
  }

  void all_gather(std::span<std::byte> all, device::Stream& stream) override {
    const size_t own = all.size() / static_cast<size_t>(host_->size());
    PECIA_CHECK(own * static_cast<size_t>(host_->size()) == all.size(), "{} bytes of {} ranks",
                all.size(), host_->size());
    for (int root = 0; root < host_->size(); ++root)
      broadcast(all.subspan(own * static_cast<size_t>(root), own), root, stream);
  }
  void reduce_scatter(const comm::Addends& values, const comm::Addends& mine,
                      device::Stream& stream) override {
    PECIA_CHECK(mine.count() * host_->size() == values.count(), "{} values of {} ranks for {}",
                values.count(), host_->size(), mine.count());
    for (int root = 0; root < host_->size(); ++root)
      reduce(values.part(mine.count() * root, mine.count()),
             root == host_->rank() ? mine : comm::Addends(), root, stream);
  }

  bool registers() const override { return true; }
  std::unique_ptr<Registration> register_block(std::span<std::byte> block) override {
    PECIA_CHECK(!in_group_, "a block is registered in a group");
    return std::make_unique<OfBlock>(registered_, block);
  }
  std::string name() const override { return "a double of NCCL"; }

  std::unique_ptr<comm::Nccl> split(int color, int key) override {
    return std::make_unique<FakeNccl>(host_->split(color, key), sums_);
  }
  comm::FoundOneShot find_one_shot(comm::Communicator&, device::Device&,
                                   int64_t most_bytes) override {
    if (most_bytes <= 0) return {nullptr, "a ring takes less time"};
    return {
        std::make_unique<FakeOneShot>(host_->split(0, place_in_sums(host_->rank())), most_bytes),
        ""};
  }
  std::string asynchronous_error() override { return ""; }
  void abort() noexcept override {}

 private:
  /// When the transfer is done, not when it is started.
  void require_registered(std::span<const std::byte> bytes) const {
    if (bytes.empty()) return;
    const auto block = registered_.upper_bound(bytes.data());
    PECIA_CHECK(block != registered_.end() && block->second <= bytes.data() &&
                    bytes.data() + bytes.size() <= block->first,
                "{} bytes travel that are not registered", bytes.size());
  }
  /// The number of an operation among those that this group has in graphs; 0 outside of graphs.
  int64_t capture_on(const device::Stream& stream) {
    const auto* const late = dynamic_cast<const LateStream*>(&stream);
    return late != nullptr && late->captures() ? ++captured_ : 0;
  }
  /// As NCCL wants it, all ranks do the operation by a graph of the same capture, or without one.
  void require_of_all_ranks(int64_t capture) const {
    const int64_t most = host_->all_reduce_max(capture), least = -host_->all_reduce_max(-capture);
    PECIA_CHECK(most == least, "ranks do an operation by captures {} to {}", least, most);
  }
  void on(device::Stream& stream) {
    PECIA_CHECK(in_group_, "a call outside of a group");
    stream_ = &stream;
  }

  int place_in_sums(int rank) const {
    return sums_ == SumsOf::host ? rank : (rank + 1) % host_->size();
  }

  std::unique_ptr<comm::Communicator> host_;
  SumsOf sums_;
  std::unique_ptr<comm::Communicator> for_sums_;
  std::unique_ptr<comm::Collectives> collectives_;
  Registered registered_;
  bool in_group_ = false;
  int64_t captured_ = 0;  ///< operations of this group in graphs
  device::Stream* stream_ = nullptr;
  std::vector<std::function<void()>> calls_;
  /// Of the group, each with its number among those between the two ranks in this direction: as in
  /// NCCL, messages of a pair meet in their order, whatever other ranks do.
  std::vector<std::pair<comm::Exchange, int64_t>> messages_;
  std::map<int, int64_t> sent_, received_;  ///< messages so far, by rank
};

}  // namespace

std::unique_ptr<comm::Nccl> make_fake_nccl(std::unique_ptr<comm::Communicator> host, SumsOf sums) {
  return std::make_unique<FakeNccl>(std::move(host), sums);
}

}  // namespace pecia::test
