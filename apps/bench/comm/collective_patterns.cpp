// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/comm/collective_patterns.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::bench {
namespace {

/// Small whole numbers, whose sums are exact in any order.
float summand(int rank, int64_t index) {
  return static_cast<float>((index * 7 + rank * 13) % 61);
}

std::vector<float> summands(int rank, int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = summand(rank, i);
  return values;
}

/// "" when got[i] is the sum over ranks of their summand `first + i`.
std::string sum_problem(std::span<const float> got, int num_ranks, int64_t first) {
  for (size_t i = 0; i < got.size(); ++i) {
    const int64_t index = first + static_cast<int64_t>(i);
    float expected = 0;
    for (int rank = 0; rank < num_ranks; ++rank) expected += summand(rank, index);
    if (!(got[i] == expected))
      return fmt::format("the sum of values {} is {}, expected {}", index, got[i], expected);
  }
  return "";
}

class CollectivePattern : public Pattern {
 public:
  CollectivePattern(const char* operation, comm::Communicator& world,
                    const std::vector<int>& servers, int64_t bytes)
      : world_(world),
        collectives_(world.make_collectives(servers, comm::SumOrder::any)),
        name_(fmt::format("{}, {}", operation,
                          collectives_->route() == comm::Route::flat ? "flat" : "by server")),
        block_(bytes / static_cast<int64_t>(sizeof(float)) / world.size()) {}

  std::string_view name() const override { return name_; }
  int64_t bytes() const override { return block_bytes() * (world_.size() - 1); }

 protected:
  int64_t block_bytes() const { return block_ * static_cast<int64_t>(sizeof(float)); }

  comm::Communicator& world_;
  std::unique_ptr<comm::Collectives> collectives_;
  std::string name_;
  int64_t block_;  ///< floats of each rank
};

class TensorAllGather : public CollectivePattern {
 public:
  TensorAllGather(comm::Communicator& world, const std::vector<int>& servers, int64_t bytes)
      : CollectivePattern("all_gather", world, servers, bytes) {
    for (int rank = 0; rank < world.size(); ++rank)
      parts_.push_back(rank == world.rank() ? payload(rank, block_bytes())
                                            : std::vector<std::byte>(block_bytes()));
    for (auto& part : parts_) blocks_.emplace_back(part);
  }
  void run() override { collectives_->start_all_gather(blocks_)->wait(); }
  std::string problem() const override {
    std::string found;
    for (int rank = 0; rank < world_.size() && found.empty(); ++rank)
      found = payload_problem(parts_[rank], rank);
    return found;
  }

 private:
  std::vector<std::vector<std::byte>> parts_;
  std::vector<std::span<std::byte>> blocks_;
};

class ReduceScatter : public CollectivePattern {
 public:
  ReduceScatter(comm::Communicator& world, const std::vector<int>& servers, int64_t bytes)
      : CollectivePattern("reduce_scatter", world, servers, bytes),
        counts_(world.size(), block_),
        partial_(summands(world.rank(), block_ * world.size())),
        mine_(block_) {}
  void run() override { collectives_->start_reduce_scatter(partial_, counts_, mine_)->wait(); }
  std::string problem() const override {
    return sum_problem(mine_, world_.size(), world_.rank() * block_);
  }

 private:
  std::vector<int64_t> counts_;
  std::vector<float> partial_, mine_;
};

class AllReduce : public CollectivePattern {
 public:
  AllReduce(comm::Communicator& world, const std::vector<int>& servers, int64_t bytes)
      : CollectivePattern("all_reduce", world, servers, bytes),
        summands_(summands(world.rank(), block_ * world.size())),
        values_(summands_.size()) {}
  void run() override {
    std::ranges::copy(summands_, values_.begin());
    collectives_->start_all_reduce(values_)->wait();
  }
  int64_t bytes() const override { return 2 * CollectivePattern::bytes(); }
  std::string problem() const override { return sum_problem(values_, world_.size(), 0); }

 private:
  std::vector<float> summands_, values_;
};

}  // namespace

std::unique_ptr<Pattern> make_tensor_all_gather(comm::Communicator& world,
                                                const std::vector<int>& servers, int64_t bytes) {
  return std::make_unique<TensorAllGather>(world, servers, bytes);
}
std::unique_ptr<Pattern> make_reduce_scatter(comm::Communicator& world,
                                             const std::vector<int>& servers, int64_t bytes) {
  return std::make_unique<ReduceScatter>(world, servers, bytes);
}
std::unique_ptr<Pattern> make_all_reduce(comm::Communicator& world, const std::vector<int>& servers,
                                         int64_t bytes) {
  return std::make_unique<AllReduce>(world, servers, bytes);
}

}  // namespace pecia::bench
