// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lib/base/device/buffer.hpp"
#include "tests/kernels/emulator/backend.hpp"
#include "tests/kernels/emulator/plain_sdpa.hpp"
#include "tests/kernels/tensors.hpp"
#include "tests/support/separate_device.hpp"

namespace pecia::test {
namespace {

using kernels::cuda::Mask;

/// Which items of a call are the library's, and which its kernels'.
class AttentionByLibrary : public testing::Test {
 protected:
  static constexpr int64_t heads = 2, head_dim = 16, long_rows = 400, short_rows = 3;

  /// One long sequence and one short, on the same keys.
  std::vector<float> attend(DType dtype, kernels::Backend& backend) {
    constexpr int64_t rows = long_rows + short_rows;
    Tensor q = Tensor::random({rows, heads, head_dim}, DType::fp32, 1);
    Tensor k = Tensor::random({1, long_rows, head_dim}, dtype, 2);
    Tensor v = Tensor::random({1, long_rows, head_dim}, dtype, 3);
    Tensor out = Tensor::filled({rows, heads, head_dim}, 55.0f);
    Tensor lse = Tensor::filled({rows, heads}, 55.0f);
    std::vector<int64_t> queries(rows);
    std::iota(queries.begin(), queries.end(), 0);
    const std::vector<kernels::KeyRun> runs = {{0, long_rows * head_dim, long_rows, 0}};
    const std::vector<kernels::AttentionItem> items = {{0, long_rows, 0, 1},
                                                       {long_rows, short_rows, 0, 1}};
    device::Stream stream(1);
    backend.attention({.q = q.view(),
                       .query_positions = queries,
                       .items = items,
                       .runs = runs,
                       .keys = {k.view().data(), v.view().data()},
                       .kv_dtype = dtype,
                       .num_kv_heads = 1,
                       .scale = 0.25f,
                       .out = out.view(),
                       .lse = lse.view()},
                      stream);
    return out.values();
  }

  std::unique_ptr<device::Device> host_ = device::make_host_device(1);
  SdpaCalls calls_;
  std::unique_ptr<kernels::Backend> with_ = make_emulated_backend(*host_, make_plain_sdpa(calls_));
  std::unique_ptr<kernels::Backend> without_ = make_emulated_backend(*host_);
};

TEST_F(AttentionByLibrary, TakesTheLongItemAlone) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    calls_.run.clear();
    const std::vector<float> by_both = attend(dtype, *with_);
    ASSERT_EQ(calls_.run.size(), 1u);
    EXPECT_EQ(calls_.run[0],
              (kernels::cuda::SdpaShape{dtype, heads, 1, head_dim, long_rows, long_rows,
                                        long_rows * head_dim, Mask::causal, 0, 0.25f}));
    // Of values below four, rounded once more than by the kernels, whose weights are rounded.
    const double rounding = dtype == DType::bf16 ? 0x1p-9 : 0x1p-12;
    EXPECT_TRUE(all_close(by_both, attend(dtype, *without_), 12 * rounding));
  }
}

/// The library gets fp8 keys and values times their scales, in bf16.
TEST_F(AttentionByLibrary, GetsCodesOfFp8AsNumbers) {
  constexpr int64_t rows = 300, keys = 500, kv_heads = 2, all_heads = 4;
  Tensor q = Tensor::random({rows, all_heads, head_dim}, DType::fp32, 1);
  Tensor k = Tensor::random({kv_heads, keys, head_dim}, DType::fp8, 2);
  Tensor v = Tensor::random({kv_heads, keys, head_dim}, DType::fp8, 3);
  std::vector<float> factors(kv_heads * keys);
  for (size_t i = 0; i < factors.size(); ++i) factors[i] = 0.5f + static_cast<float>(i % 7) / 8;
  Tensor k_scales({kv_heads, keys}, DType::fp32, factors);
  std::reverse(factors.begin(), factors.end());
  Tensor v_scales({kv_heads, keys}, DType::fp32, factors);
  std::vector<int64_t> queries(rows);
  std::iota(queries.begin(), queries.end(), keys - rows);
  const std::vector<kernels::KeyRun> runs = {{0, keys * head_dim, 120, 0},
                                             {120 * head_dim, keys * head_dim, keys - 120, 120}};
  const std::vector<kernels::AttentionItem> items = {{0, rows, 0, 2}};
  const auto attend_with = [&](kernels::Backend& backend) {
    Tensor out = Tensor::filled({rows, all_heads, head_dim}, 55.0f);
    Tensor lse = Tensor::filled({rows, all_heads}, 55.0f);
    device::Stream stream(1);
    backend.attention({.q = q.view(),
                       .query_positions = queries,
                       .items = items,
                       .runs = runs,
                       .keys = {k.view().data(), v.view().data(), k_scales.view().as<float>(),
                                v_scales.view().as<float>()},
                       .kv_dtype = DType::fp8,
                       .num_kv_heads = kv_heads,
                       .scale = 0.25f,
                       .out = out.view(),
                       .lse = lse.view()},
                      stream);
    return std::pair(out.values(), lse.values());
  };
  const auto by_library = attend_with(*with_), by_kernels = attend_with(*without_);
  ASSERT_EQ(calls_.run.size(), 1u);
  EXPECT_EQ(calls_.run[0],
            (kernels::cuda::SdpaShape{DType::bf16, all_heads, kv_heads, head_dim, rows, keys,
                                      keys * head_dim, Mask::causal, 0, 0.25f}));
  // Keys, values and results are rounded to bf16 beside what the kernels round.
  EXPECT_TRUE(all_close(by_library.first, by_kernels.first, 16 * 0x1p-9));
  EXPECT_TRUE(all_close(by_library.second, by_kernels.second, 16 * 0x1p-9));
}

TEST_F(AttentionByLibrary, IsNotAskedForKeysInFp32) {
  EXPECT_EQ(attend(DType::fp32, *with_), attend(DType::fp32, *without_));
  EXPECT_TRUE(calls_.run.empty());
}

TEST_F(AttentionByLibrary, LeavesToTheKernelsWhatItRefuses) {
  calls_.most_keys = long_rows - 1;
  EXPECT_EQ(attend(DType::bf16, *with_), attend(DType::bf16, *without_));
  EXPECT_TRUE(calls_.run.empty());
}

TEST_F(AttentionByLibrary, LeavesToTheKernelsWhatItCannotStart) {
  calls_.most_starts = 0;
  EXPECT_EQ(attend(DType::bf16, *with_), attend(DType::bf16, *without_));
  EXPECT_TRUE(calls_.run.empty());
}

TEST_F(AttentionByLibrary, GivesTheSameBitsEachTime) {
  EXPECT_EQ(attend(DType::bf16, *with_), attend(DType::bf16, *with_));
}

/// Rows of one or several rectangles; with `first_key` the first rows see no key.
struct Results {
  std::vector<float> out, lse;
};
Results attend_runs(kernels::Backend& backend, DType keys, DType out_type, int num_runs,
                    int64_t first_key) {
  constexpr int64_t rows = 1024, heads = 2, head_dim = 16;
  Tensor q = Tensor::random({rows, heads, head_dim}, DType::fp32, 4);
  Tensor k = Tensor::random({2, rows, head_dim}, keys, 5);
  Tensor v = Tensor::random({2, rows, head_dim}, keys, 6);
  Tensor out = Tensor::random({rows, heads, head_dim}, out_type, 7);
  Tensor lse = Tensor::filled({rows, heads}, 55.0f);
  std::vector<int64_t> positions(rows);
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<kernels::KeyRun> runs;
  const int64_t each = rows / num_runs, gap = num_runs > 1 ? 8 : 0;  // tokens between the runs
  for (int64_t run = 0; run < num_runs; ++run)
    runs.push_back({run * each * head_dim, rows * head_dim, each - gap, first_key + run * each});
  const std::vector<kernels::AttentionItem> items = {{0, rows, 0, num_runs}};
  device::Stream stream(1);
  backend.attention({.q = q.view(),
                     .query_positions = positions,
                     .items = items,
                     .runs = runs,
                     .keys = {k.view().data(), v.view().data()},
                     .kv_dtype = keys,
                     .num_kv_heads = 2,
                     .scale = 0.25f,
                     .out = out.view(),
                     .lse = lse.view()},
                    stream);
  return {out.values(), lse.values()};
}

/// The next product would round results in fp32 to these bits.
TEST_F(AttentionByLibrary, RoundsResultsToTheBitsOfFp32RoundedAfterwards) {
  for (const DType keys : {DType::bf16, DType::fp16})
    for (const DType narrow : {DType::bf16, DType::fp16})
      for (const auto& [runs, first_key] : {std::pair{1, 100}, {2, 0}}) {
        SCOPED_TRACE(fmt::format("keys of {} in {} runs from {}, out of {}", name_of(keys), runs,
                                 first_key, name_of(narrow)));
        calls_.run.clear();
        const Results wide = attend_runs(*with_, keys, DType::fp32, runs, first_key);
        const size_t rectangles = calls_.run.size();
        EXPECT_GE(rectangles, static_cast<size_t>(runs));
        const Results found = attend_runs(*with_, keys, narrow, runs, first_key);
        EXPECT_EQ(calls_.run.size(), 2 * rectangles) << "the library does both";
        const Tensor rounded({std::ssize(wide.out)}, narrow, wide.out);
        EXPECT_EQ(found.out, rounded.values());
        EXPECT_EQ(found.lse, wide.lse);
      }
}

/// On a device that counts its memory, by pages: what a call takes is kept for the next. Results of
/// another type than the keys wait in fp32.
TEST(LibraryMemory, IsThatOfTheFormula) {
  constexpr int64_t rows = 512, heads = 4, head_dim = 64;
  const auto device = make_separate_device();
  const auto stream = device->make_stream();
  SdpaCalls calls;
  const auto backend = make_emulated_backend(*device, make_plain_sdpa(calls));
  device::Buffer q(*device, device::Memory::device), k(*device, device::Memory::device),
      v(*device, device::Memory::device), out(*device, device::Memory::device),
      lse(*device, device::Memory::device);
  std::vector<int64_t> positions(rows);
  std::iota(positions.begin(), positions.end(), 0);
  const auto attend = [&](DType out_type) {
    const std::vector<kernels::KeyRun> runs = {{0, rows * head_dim, rows, 0}};
    const std::vector<kernels::AttentionItem> items = {{0, rows, 0, 1}};
    backend->attention({.q = q.tensor(DType::fp32, {rows, heads, head_dim}),
                        .query_positions = positions,
                        .items = items,
                        .runs = runs,
                        .keys = {k.tensor(DType::bf16, {rows, head_dim}).data(),
                                 v.tensor(DType::bf16, {rows, head_dim}).data()},
                        .kv_dtype = DType::bf16,
                        .num_kv_heads = 1,
                        .scale = 0.125f,
                        .out = out.tensor(out_type, {rows, heads, head_dim}),
                        .lse = lse.tensor(DType::fp32, {rows, heads})},
                       *stream);
  };
  for (device::Buffer* const buffer : {&q, &k, &v, &out, &lse}) {
    buffer->reserve(rows * heads * head_dim * size_of(DType::fp32));
    device->zero(buffer->data(), buffer->bytes(), *stream);
  }
  const int64_t before = device->memory().free_bytes;
  const auto taken = [&] { return before - device->memory().free_bytes; };
  attend(DType::bf16);
  EXPECT_EQ(calls.run.size(), 1u);
  EXPECT_LT(taken(), rows * kernels::library_bytes_per_row(heads, head_dim)) << "in place";
  for (int call = 0; call < 2; ++call) {
    attend(DType::fp16);
    EXPECT_EQ(taken(), rows * kernels::library_bytes_per_row(heads, head_dim));
  }
  EXPECT_EQ(calls.run.size(), 3u);
}

TEST_F(AttentionByLibrary, IsNamedByTheBackend) {
  EXPECT_EQ(with_->attention_library(), "plain loops");
  EXPECT_EQ(without_->attention_library(), "none: the emulator was given none");
}

}  // namespace
}  // namespace pecia::test
