// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numeric>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::AttentionItem;
using kernels::empty_lse;
using kernels::KeyRun;

struct Range {
  int64_t begin, end;
};

/// Several sequences in one call, each with rows and keys at ranges of positions, long enough that
/// a library would be asked. The keys of all lie in one cache, with slots of NaN between and after
/// them, which nobody may read.
struct Batch {
  struct Sequence {
    std::vector<Range> queries, keys;
  };
  Heads heads;
  DType dtype;
  kernels::Window window = {};
  std::vector<int64_t> query_positions = {}, key_positions = {};
  std::vector<AttentionItem> items = {};
  std::vector<KeyRun> runs = {};
  std::vector<Tensor> tensors = {};  ///< q, k, v

  void fill(const std::vector<Sequence>& sequences) {
    std::vector<std::pair<int64_t, int64_t>> slots;  // of each run: its first, and how many
    int64_t next_slot = 0;
    for (const Sequence& sequence : sequences) {
      const auto first_row = static_cast<int64_t>(query_positions.size());
      const auto first_run = static_cast<int64_t>(slots.size());
      for (const Range& range : sequence.queries)
        for (int64_t p = range.begin; p < range.end; ++p) query_positions.push_back(p);
      for (const Range& range : sequence.keys) {
        for (int64_t p = range.begin; p < range.end; ++p) key_positions.push_back(p);
        slots.push_back({next_slot, range.end - range.begin});
        next_slot += range.end - range.begin;
      }
      items.push_back({first_row, static_cast<int64_t>(query_positions.size()) - first_row,
                       first_run, static_cast<int64_t>(slots.size()) - first_run});
      next_slot += 8;
    }
    const auto rows = static_cast<int64_t>(query_positions.size());
    tensors.push_back(Tensor::random({rows, heads.num_heads, heads.head_dim}, DType::fp32, 1));
    for (const uint64_t seed : {2, 3}) {
      const int64_t elements = heads.num_kv_heads * next_slot * heads.head_dim;
      std::vector<float> values = random_floats(elements, seed), cache(elements, NAN);
      for (int64_t head = 0; head < heads.num_kv_heads; ++head)
        for (const auto& [first, count] : slots)
          for (int64_t i = first * heads.head_dim; i < (first + count) * heads.head_dim; ++i)
            cache[head * next_slot * heads.head_dim + i] =
                values[head * next_slot * heads.head_dim + i];
      tensors.emplace_back(std::vector<int64_t>{heads.num_kv_heads, next_slot, heads.head_dim},
                           dtype, cache);
    }
    int64_t first_key = 0;
    for (const auto& [first, count] : slots) {
      runs.push_back(
          {first * heads.head_dim, next_slot * heads.head_dim, count, key_positions[first_key]});
      first_key += count;
    }
  }

  std::pair<std::vector<float>, std::vector<float>> attend(Device& device) {
    const auto rows = static_cast<int64_t>(query_positions.size());
    Tensor out = Tensor::filled({rows, heads.num_heads, heads.head_dim}, 55.0f);
    Tensor lse = Tensor::filled({rows, heads.num_heads}, 55.0f);
    device.backend->attention({.q = tensors[0].view(),
                               .query_positions = query_positions,
                               .items = items,
                               .runs = runs,
                               .keys = {tensors[1].view().data(), tensors[2].view().data()},
                               .kv_dtype = dtype,
                               .num_kv_heads = heads.num_kv_heads,
                               .scale = 1 / std::sqrt(static_cast<float>(heads.head_dim)),
                               .window = window,
                               .out = out.view(),
                               .lse = lse.view()},
                              device.stream);
    return {out.values(), lse.values()};
  }
};

/// Body over (attention device, stored type).
class AttentionPrefill : public OpTest {
 protected:
  /// Scores err as in test_attention.cpp; out may be rounded once more, before each of its merges,
  /// by half a unit in the last place of values below four.
  void expect_equal_to_reference(const Heads& heads, int64_t window,
                                 const std::vector<Batch::Sequence>& sequences) {
    Batch batch = {heads, dtype_, window};
    batch.fill(sequences);
    Device oracle = make_device("reference");
    const auto [out, lse] = batch.attend(device_);
    const auto [expected_out, expected_lse] = batch.attend(oracle);
    const double rounding = device_.rounding(dtype_);
    EXPECT_TRUE(all_close(out, expected_out, 4e-6 + 8 * rounding + 4 * rounding));
    EXPECT_TRUE(all_close(lse, expected_lse, 4e-6 + 8 * rounding, 0x1p-22));
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, AttentionPrefill,
                         testing::Combine(testing::ValuesIn(every_attention_device()),
                                          testing::Values(DType::bf16, DType::fp16)),
                         name_of_param);

TEST_P(AttentionPrefill, OfOneSequenceAroundTheTiles) {
  for (const int64_t rows : {363, 384, 385})
    expect_equal_to_reference({2, 1, 64}, 0, {{{{0, rows}}, {{0, rows}}}});
  expect_equal_to_reference({3, 3, 80}, 0, {{{{200, 533}}, {{0, 1000}}}});  // later keys unseen
}

/// Rank 1 of three: its own chunks, those of a lower and of a higher rank.
TEST_P(AttentionPrefill, OfTheRingsThreeCases) {
  const std::vector<Range> own = {{400, 800}, {1600, 2000}};
  for (const int64_t window : {0, 900}) {
    expect_equal_to_reference({2, 1, 16}, window, {{own, own}});
    expect_equal_to_reference({2, 1, 16}, window, {{own, {{0, 400}, {2000, 2400}}}});
    expect_equal_to_reference({2, 1, 16}, window, {{own, {{800, 1200}, {1200, 1600}}}});
  }
}

TEST_P(AttentionPrefill, OfWindowsAcrossKeysInSeveralRuns) {
  for (const int64_t window : {600, 1100})
    expect_equal_to_reference({2, 2, 16}, window,
                              {{{{1000, 2000}}, {{800, 2000}, {0, 800}, {900, 1000}}}});
}

TEST_P(AttentionPrefill, OfARaggedBatchOfLongAndShortSequences) {
  expect_equal_to_reference({4, 2, 16}, 0,
                            {{{{0, 5}}, {{0, 5}}},
                             {{{100, 500}}, {{0, 500}}},
                             {{{900, 901}}, {{0, 901}}},
                             {{{0, 420}}, {{0, 420}}}});
}

TEST_P(AttentionPrefill, RowsBeforeAllKeysAreEmpty) {
  Batch batch = {{2, 1, 16}, dtype_};
  batch.fill({{{{0, 600}}, {{200, 600}}}});
  const auto [out, lse] = batch.attend(device_);
  for (int64_t i = 0; i < 200 * 2; ++i) ASSERT_EQ(lse[i], empty_lse) << i;
  for (int64_t i = 0; i < 200 * 2 * 16; ++i) ASSERT_EQ(out[i], 0.0f) << i;
  for (int64_t i = 200 * 2; i < 600 * 2; ++i) ASSERT_TRUE(std::isfinite(lse[i])) << i;
}

}  // namespace
}  // namespace pecia::test
