// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numeric>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::ColumnSumsArgs;
using kernels::empty_lse;
using kernels::KeyRun;

/// Queries at the last positions of the keys', with attention's own lse.
struct SumsProblem {
  int64_t num_heads, num_kv_heads, head_dim, num_rows, num_keys;
  kernels::Window window;
  DType dtype;
  Tensor q, k, scales, lse;
  std::vector<int64_t> query_positions;

  SumsProblem(int64_t heads, int64_t kv_heads, int64_t dim, int64_t rows, int64_t keys,
              kernels::Window seen, DType type)
      : num_heads(heads),
        num_kv_heads(kv_heads),
        head_dim(dim),
        num_rows(rows),
        num_keys(keys),
        window(seen),
        dtype(type),
        q(Tensor::random({rows, heads, dim}, DType::fp32, 1)),
        k(Tensor::random({kv_heads, keys, dim}, type, 2)),
        scales(Tensor::random({kv_heads, keys}, DType::fp32, 3)),
        lse(Tensor::filled({rows, heads}, 0)),
        query_positions(rows) {
    std::iota(query_positions.begin(), query_positions.end(), keys - rows);
    const Device oracle = make_device("reference");
    device::Stream stream;
    Tensor out = Tensor::filled({rows, heads, dim}, 0);
    const std::vector<kernels::AttentionItem> items = {{0, rows, 0, 1}};
    const std::vector<KeyRun> runs = {run(0, num_keys)};
    oracle.backend->attention({.q = q.view(),
                               .query_positions = query_positions,
                               .items = items,
                               .runs = runs,
                               .keys = stored(),
                               .kv_dtype = dtype,
                               .num_kv_heads = num_kv_heads,
                               .scale = scale(),
                               .window = window,
                               .out = out.view(),
                               .lse = lse.view()},
                              stream);
  }

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  KeyRun run(int64_t begin, int64_t count) const {
    return {begin * head_dim, num_keys * head_dim, count, begin};
  }
  kernels::StoredKeys stored() {
    float* const scale = dtype == DType::fp8 ? scales.view().as<float>() : nullptr;
    return {k.view().data(), k.view().data(), scale, scale};
  }
  std::vector<float> sums(Device& device, int64_t begin, int64_t count, int64_t gap = 0) {
    Tensor sums = Tensor::filled({num_kv_heads, count}, -1, gap);
    device.backend->column_sums({.q = q.view(),
                                 .lse = lse.view(),
                                 .query_positions = query_positions,
                                 .run = run(begin, count),
                                 .keys = stored(),
                                 .kv_dtype = dtype,
                                 .num_kv_heads = num_kv_heads,
                                 .scale = scale(),
                                 .window = window,
                                 .sums = sums.view()},
                                device.stream);
    EXPECT_TRUE(sums.gaps_intact());
    return sums.values();
  }
};

/// A probability of up to 1 errs by its exponent's: a dot product of `dim` terms of size √dim at
/// most a few times, scaled by 1/√dim.
double tolerance(const SumsProblem& of) {
  return static_cast<double>(of.num_rows * of.num_heads / of.num_kv_heads) *
         sum_tolerance(of.head_dim);
}

class ColumnSums : public OpTest {};
INSTANTIATE_TEST_SUITE_P(Backends, ColumnSums,
                         testing::Combine(testing::ValuesIn(every_device()),
                                          testing::Values(DType::fp32, DType::bf16, DType::fp16,
                                                          DType::fp8)),
                         name_of_param);

TEST_P(ColumnSums, AreSharesOfWhatIsSeen) {
  // Two rows of one element; the second key is seen by the second row alone, the third by none.
  SumsProblem of(1, 1, 1, 2, 3, 0, dtype_);
  of.q = Tensor({2, 1, 1}, DType::fp32, {1, 2});
  of.k = Tensor({1, 3, 1}, dtype_, {0, 1, 5});
  of.scales = Tensor::filled({1, 3}, 1);
  of.query_positions = {0, 1};
  const float e2 = std::exp(2.0f);
  of.lse = Tensor({2, 1}, DType::fp32, {0, std::log(1 + e2)});
  EXPECT_TRUE(all_close(of.sums(device_, 0, 3),
                        std::vector<float>{1 + 1 / (1 + e2), e2 / (1 + e2), 0}, 1e-6));
}

TEST_P(ColumnSums, OfAllKeysCountTheRowsOfAllHeads) {
  for (const int64_t window : {0, 7}) {
    SumsProblem of(6, 2, 20, 30, 77, window, dtype_);
    const std::vector<float> sums = of.sums(device_, 0, 77);
    for (int64_t head = 0; head < 2; ++head)
      EXPECT_NEAR(std::accumulate(sums.begin() + 77 * head, sums.begin() + 77 * (head + 1), 0.0),
                  3 * 30, 90 * 1e-4)
          << head;
  }
}

TEST_P(ColumnSums, AgreeWithTheReferenceForAnyPartOfTheKeys) {
  Device oracle = make_device("reference");
  for (const int64_t dim : {8, 64, 100})
    for (const int64_t window : {0, 5})
      for (const int64_t keys : {1, 31, 32, 33, 64, 65, 130}) {
        SumsProblem of(4, 2, dim, std::min<int64_t>(keys, 9), keys, window, dtype_);
        of.lse = Tensor({of.num_rows, 4}, DType::fp32, [&] {
          std::vector<float> lse = of.lse.values();
          lse[2] = empty_lse;  // a row that sees nothing, whatever the positions say
          return lse;
        }());
        const int64_t begin = keys / 3;
        EXPECT_TRUE(all_close(of.sums(device_, begin, keys - begin, 2),
                              of.sums(oracle, begin, keys - begin), tolerance(of)))
            << dim << ", " << window << ", " << keys;
      }
}

TEST_P(ColumnSums, InChunksAgreeWithTheReference) {
  Device oracle = make_device("reference");
  for (const int64_t chunk : {1, 20, 100}) {
    SumsProblem of(4, 2, 24, 50, 130, kernels::Window::chunks_of(chunk), dtype_);
    EXPECT_TRUE(all_close(of.sums(device_, 10, 120), of.sums(oracle, 10, 120), tolerance(of)))
        << chunk;
  }
}

/// More heads in a group than are summed at once, and some that are no multiple of it.
TEST_P(ColumnSums, OfLargeGroupsAgreeWithTheReference) {
  Device oracle = make_device("reference");
  for (const int64_t heads : {5, 9}) {
    SumsProblem of(2 * heads, 2, 20, 9, 70, 0, dtype_);
    EXPECT_TRUE(all_close(of.sums(device_, 0, 70), of.sums(oracle, 0, 70), tolerance(of))) << heads;
  }
}

TEST_P(ColumnSums, AreNeverNaN) {
  SumsProblem of(2, 1, 8, 3, 40, 0, dtype_);
  std::vector<float> queries = of.q.values();
  for (int64_t row = 0; row < 3; ++row) std::fill_n(queries.begin() + row * 16 + 8, 8, 0.0f);
  of.q = Tensor({3, 2, 8}, DType::fp32, queries);  // head 1 scores 0 everywhere
  of.lse = Tensor({3, 2}, DType::fp32, {1, infinity, 2, infinity, 3, infinity});
  const std::vector<float> of_head_0 = of.sums(device_, 0, 40);
  EXPECT_GT(of_head_0[5], 0);
  queries[8] = std::nanf("");  // row 0, head 1: its sums are NaN for the keys that the row sees
  of.q = Tensor({3, 2, 8}, DType::fp32, queries);
  EXPECT_EQ(of.sums(device_, 0, 40), of_head_0);
}

TEST_P(ColumnSums, OfNoRowsOrNoKeys) {
  SumsProblem of(2, 1, 8, 3, 40, 0, dtype_);
  EXPECT_TRUE(of.sums(device_, 4, 0).empty());
  SumsProblem none(2, 1, 8, 0, 4, 0, dtype_);
  EXPECT_EQ(none.sums(device_, 0, 4), std::vector<float>(4, 0.0f));
}

}  // namespace
}  // namespace pecia::test
