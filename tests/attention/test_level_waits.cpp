// SPDX-License-Identifier: Apache-2.0
/// What a layer of sparse attention costs the host: how often it waits for the device, and how many
/// ops, copies and messages it starts. A phantom of one rank counts them. With lists of tokens on the
/// host, rank 4 of 8 that share 131072 tokens waited twice in a layer that drops and weighs tokens,
/// made 105364 copies (240260 with two levels above the first), and sent 47 messages.

#include <gtest/gtest.h>

#include <ostream>

#include "kernels/phantom/phantom.hpp"
#include "lib/base/device/phantom_device.hpp"
#include "lib/model/attention/attention.hpp"
#include "lib/ranks/comm/phantom.hpp"
#include "tests/attention/groups.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::attention {
namespace {

struct Counts {
  int64_t waits = 0, copies = 0, ops = 0, messages = 0;
  bool operator==(const Counts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  return out << counts.waits << " waits, " << counts.copies << " copies, " << counts.ops << " ops, "
             << counts.messages << " messages";
}

class CountingStream : public device::Stream {
 public:
  explicit CountingStream(Counts& counts) : counts_(counts) {}
  void synchronize() override { ++counts_.waits; }

 private:
  Counts& counts_;
};

class CountingDevice : public device::PhantomDevice {
 public:
  explicit CountingDevice(Counts& counts)
      : PhantomDevice({"phantom", 90, 132, "", ""}, int64_t{80} << 30), counts_(counts) {
    on_copy([&counts](int64_t) { ++counts.copies; });
  }
  std::unique_ptr<device::Stream> make_stream() override {
    return std::make_unique<CountingStream>(counts_);
  }

 private:
  Counts& counts_;
};

enum class Share { tokens, heads };

/// One rank's share of a prompt of Llama 3 8B's shape, whose ranks share tokens or heads.
class LevelLayers {
 public:
  static constexpr int64_t layers = 5, head_dim = 128;

  LevelLayers(Share share, int ranks, int per_server, int64_t tokens,
              parallel::Selection selection = parallel::Selection::importance)
      : share_(share),
        ranks_(comm::make_phantom_communicator(ranks / 2, ranks)),
        heads_(share == Share::heads ? 32 / ranks : 32),
        kv_heads_(share == Share::heads ? 8 / ranks : 8),
        rows_(share == Share::heads ? tokens : tokens / ranks),
        compute_(std::make_unique<CountingDevice>(counts_),
                 kernels::make_phantom_backend([this](const kernels::OpWork&) { ++counts_.ops; })),
        cache_({layers, kv_heads_, head_dim, DType::bf16}, rows_, *compute_.device),
        groups_(share == Share::tokens ? ring_groups(*ranks_, places(ranks, per_server))
                                       : head_groups(*ranks_, places(ranks, per_server))),
        attention_(groups_, {32, 8}, std::vector<kernels::Window>(layers), compute_, cache_,
                   kernels::RowInvariant::no, setting(selection)) {
    const int instances = share == Share::tokens ? ranks : 1;
    attention_.ledger().add(1, std::vector<int64_t>(instances, rows_));
    attention_.begin_pass({{parallel::team_of_all(instances, parallel::AttentionExchange::levels),
                            {{1, 0, tokens, parallel::PassSequence::contiguous}}}},
                          1);
  }

  Counts run(int64_t layer) {
    const Counts before = counts_;
    const int64_t sent = ranks_->traffic().messages;
    const TensorView k = tensor(k_, kv_heads_), q = tensor(q_, heads_);
    attention_.start_keys(k, k);
    attention_.run(layer, q, tensor(out_, heads_));
    return {counts_.waits - before.waits, counts_.copies - before.copies, counts_.ops - before.ops,
            ranks_->traffic().messages - sent};
  }

 private:
  static std::vector<comm::RackServerGpu> places(int ranks, int per_server) {
    std::vector<comm::RackServerGpu> all;
    for (int rank = 0; rank < ranks; ++rank)
      all.push_back({"rack", std::to_string(rank / per_server), rank % per_server});
    return all;
  }
  static parallel::SparseSetting setting(parallel::Selection selection) {
    parallel::SparseSetting setting{{parallel::Geometry::disjoint, 0.2}, {}, {}};
    setting.selection = selection;
    return setting;
  }
  TensorView tensor(device::Buffer& buffer, int64_t heads) const {
    return buffer.tensor(DType::fp32, {rows_, heads, head_dim});
  }

  Share share_;
  Counts counts_;
  std::unique_ptr<comm::Communicator> ranks_;
  int64_t heads_, kv_heads_, rows_;
  test::OwnedCompute compute_;
  KvCache cache_;
  ReplicaGroups groups_;
  Attention attention_;
  device::Buffer q_ = device::Buffer(*compute_.device, device::Memory::device),
                 k_ = device::Buffer(*compute_.device, device::Memory::device),
                 out_ = device::Buffer(*compute_.device, device::Memory::device);
};

/// Of layers that weigh all tokens, that drop and weigh, that only drop, and that do neither. Each
/// number is as large for a prompt of 8192 tokens as for one of 131072.
struct Expected {
  Share share;
  int per_server;
  Counts weighs, drops_and_weighs, drops, neither;
};

class LevelWaits : public testing::TestWithParam<Expected> {};

/// Rank 4 of 8 sends its keys and its queries to 7 ranks and results to 6, the same over two levels, and its
/// samples to 7. Where heads are shared it sends what its rows need to 7. The copy is that of
/// log-sums before other ranks' results; where heads are shared, another one is of what rows need.
INSTANTIATE_TEST_SUITE_P(
    All, LevelWaits,
    testing::Values(
        Expected{Share::tokens, 8, {0, 1, 19, 27}, {0, 1, 20, 27}, {0, 0, 16, 20}, {0, 0, 12, 20}},
        Expected{Share::tokens, 4, {0, 1, 22, 23}, {0, 1, 23, 23}, {0, 0, 19, 16}, {0, 0, 15, 16}},
        Expected{Share::heads, 8, {0, 2, 17, 7}, {0, 2, 18, 7}, {0, 0, 13, 0}, {0, 0, 9, 0}}));

TEST_P(LevelWaits, AreNoneAndTheRestDoesNotGrowWithTokens) {
  const Expected& of = GetParam();
  for (const int64_t tokens : {8192, 131072}) {
    LevelLayers layers(of.share, 8, of.per_server, tokens);
    EXPECT_EQ(layers.run(0), of.weighs) << tokens;
    EXPECT_EQ(layers.run(1), of.drops_and_weighs) << tokens;
    EXPECT_EQ(layers.run(2), of.drops_and_weighs) << tokens;
    EXPECT_EQ(layers.run(3), of.drops) << tokens;
    EXPECT_EQ(layers.run(4), of.neither) << tokens;
  }
}

/// Only the numbers of tokens that are kept at random come from the host, in one copy.
TEST(LevelWaitsOfRandomTokens, AreOneCopyMore) {
  LevelLayers chosen(Share::tokens, 8, 8, 8192);
  LevelLayers random(Share::tokens, 8, 8, 8192, parallel::Selection::random);
  EXPECT_EQ(random.run(0), chosen.run(0));
  Counts counts = chosen.run(1);
  ++counts.copies;
  EXPECT_EQ(random.run(1), counts);
}

}  // namespace
}  // namespace pecia::attention
