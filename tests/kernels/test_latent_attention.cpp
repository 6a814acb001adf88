// SPDX-License-Identifier: Apache-2.0
/// Attention whose values are the beginnings of its keys, of one KV head that all heads share.

#include <cmath>
#include <numeric>

#include "tests/kernels/key_runs.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::AttentionArgs;
using kernels::AttentionFrom;
using kernels::AttentionItem;
using kernels::KeyRun;

struct LatentShape {
  int64_t heads, key_dim, value_dim, rows, keys;
};

struct LatentResult {
  std::vector<float> out, lse;
};

/// Queries of the last positions. Keys lie in two runs, the later positions first, so that blocks of
/// keys are copied together where the runs meet.
class Latents {
 public:
  Latents(const LatentShape& shape, DType type)
      : shape_(shape),
        type_(type),
        q_(Tensor::random({shape.rows, shape.heads, shape.key_dim}, DType::fp32, 1)),
        keys_(Tensor::random({1, shape.keys, shape.key_dim}, type, 2)),
        scales_(Tensor::random({1, shape.keys}, DType::fp32, 3)),
        positions_(shape.rows) {
    std::iota(positions_.begin(), positions_.end(), shape.keys - shape.rows);
    const int64_t cut = shape.keys / 3, all = shape.keys * shape.key_dim;
    runs_ = {{cut * shape.key_dim, all, shape.keys - cut, cut}, {0, all, cut, 0}};
    items_ = {{0, shape.rows, 0, 2}};
    for (int64_t key = 0; key < shape.keys; ++key)  // scales are positive
      scales_.view().as<float>()[key] = 0.5f + std::fabs(scales_.view().as<float>()[key]) / 8;
  }

  /// With values of their own, which are copies of the keys, and as long as these.
  LatentResult attend_with_copies(Device& device) {
    Tensor copies = keys_, out = outputs(shape_.key_dim), lse = log_sums();
    AttentionArgs args = args_of(out, lse);
    args.keys.v = copies.view().data();
    device.backend->attention(args, device.stream);
    LatentResult result{{}, lse.values()};
    const std::vector<float> all = out.values();
    for (int64_t row = 0; row < shape_.rows * shape_.heads; ++row)
      result.out.insert(result.out.end(), all.begin() + row * shape_.key_dim,
                        all.begin() + row * shape_.key_dim + shape_.value_dim);
    return result;
  }

  LatentResult attend(Device& device) {
    Tensor out = outputs(shape_.value_dim), lse = log_sums();
    device.backend->attention(args_of(out, lse), device.stream);
    return {out.values(), lse.values()};
  }

  /// One run after the other, where the backend continues results.
  LatentResult attend_in_turn(Device& device) {
    Tensor out = outputs(shape_.value_dim), lse = log_sums();
    AttentionArgs args = args_of(out, lse);
    items_ = {{0, shape_.rows, 0, 1}};
    args.items = items_;
    device.backend->attention(args, device.stream);
    items_ = {{0, shape_.rows, 1, 1}};
    args.from = AttentionFrom::result;
    device.backend->attention(args, device.stream);
    items_ = {{0, shape_.rows, 0, 2}};
    return {out.values(), lse.values()};
  }

  /// Rows [first, first + count) alone, with their bits.
  LatentResult attend_invariant(Device& device, int64_t first, int64_t count) {
    Tensor out = outputs(shape_.value_dim), lse = log_sums();
    AttentionArgs args = args_of(out, lse);
    const std::vector<AttentionItem> item = {{first, count, 0, 2}};
    args.items = item;
    args.row_invariant = kernels::RowInvariant::yes;
    device.backend->attention(args, device.stream);
    const auto part = [&](const std::vector<float>& all, int64_t width) {
      const auto begin = all.begin() + first * shape_.heads * width;
      return std::vector<float>(begin, begin + count * shape_.heads * width);
    };
    return {part(out.values(), shape_.value_dim), part(lse.values(), 1)};
  }

  /// Both runs as leaves of a tree, where the backend merges results.
  LatentResult attend_merged(Device& device) {
    Tensor out = outputs(shape_.value_dim), lse = log_sums();
    AttentionArgs args = args_of(out, lse);
    const std::vector<AttentionItem> leaves = {{0, shape_.rows, 0, 1}, {0, shape_.rows, 1, 1}};
    args.items = leaves;
    args.merged = 2;
    args.row_invariant = kernels::RowInvariant::yes;
    device.backend->attention(args, device.stream);
    return {out.values(), lse.values()};
  }

 private:
  Tensor outputs(int64_t width) const {
    return Tensor::filled({shape_.rows, shape_.heads, width}, 55.0f);
  }
  Tensor log_sums() const { return Tensor::filled({shape_.rows, shape_.heads}, 55.0f); }

  AttentionArgs args_of(Tensor& out, Tensor& lse) {
    const void* const keys = keys_.view().data();
    const float* const scales = type_ == DType::fp8 ? scales_.view().as<float>() : nullptr;
    return {.q = q_.view(),
            .query_positions = positions_,
            .items = items_,
            .runs = runs_,
            .keys = {keys, keys, scales, scales},
            .kv_dtype = type_,
            .num_kv_heads = 1,
            .scale = 1 / std::sqrt(static_cast<float>(shape_.key_dim)),
            .out = out.view(),
            .lse = lse.view()};
  }

  LatentShape shape_;
  DType type_;
  Tensor q_, keys_, scales_;
  std::vector<int64_t> positions_;
  std::vector<KeyRun> runs_;
  std::vector<AttentionItem> items_;
};

/// Few rows and strips of rows, several blocks of keys, widths that vectors and tiles do not divide,
/// and the widths of DeepSeek-V3 and Mistral Small 4: a tile of 16 packed rows or less, several of 64
/// that end within a tile, and enough keys for several blocks, whose last tile is not full.
constexpr LatentShape latent_shapes[] = {
    {1, 8, 4, 1, 1},       {2, 12, 7, 3, 70},      {5, 40, 32, 2, 300},    {8, 40, 32, 33, 140},
    {16, 33, 1, 9, 257},   {16, 576, 512, 3, 150}, {3, 128, 128, 40, 140}, {7, 576, 512, 2, 77},
    {24, 320, 256, 3, 97}, {3, 320, 256, 1, 1300}};

PECIA_OP_TEST_OF(LatentAttention, kv_types);

/// The tolerance of TEST(Attention): test_attention.cpp.
void expect_close(const LatentResult& actual, const LatentResult& expected, const Device& device,
                  DType type) {
  const double tolerance = 4e-6 + 12 * device.rounding(type);
  EXPECT_TRUE(all_close(actual.out, expected.out, tolerance));
  EXPECT_TRUE(all_close(actual.lse, expected.lse, tolerance, 0x1p-22));
}

TEST_P(LatentAttention, EqualsAttentionToCopiesOfTheKeys) {
  Device oracle = make_device("reference");
  for (const LatentShape& shape : latent_shapes) {
    SCOPED_TRACE(testing::Message() << shape.heads << " heads of " << shape.key_dim << " and "
                                    << shape.value_dim << ", " << shape.rows << " rows");
    Latents latents(shape, dtype_);
    expect_close(latents.attend(device_), latents.attend_with_copies(oracle), device_, dtype_);
  }
}

TEST_P(LatentAttention, ContinuesAndMergesResults) {
  for (const LatentShape& shape : latent_shapes) {
    Latents latents(shape, dtype_);
    const LatentResult at_once = latents.attend(device_);
    if (device_.backend->continues_attention())
      expect_close(latents.attend_in_turn(device_), at_once, device_, dtype_);
    if (device_.backend->merges_attention())
      expect_close(latents.attend_merged(device_), at_once, device_, dtype_);
  }
}

TEST_P(LatentAttention, KeepsTheBitsOfARowThatStandsAlone) {
  if (std::get<0>(GetParam()) == "reference") return;
  for (const LatentShape& shape :
       {LatentShape{8, 40, 32, 20, 90}, LatentShape{16, 320, 256, 6, 90}}) {
    Latents latents(shape, dtype_);
    const LatentResult all = latents.attend_invariant(device_, 0, shape.rows);
    const int64_t row = shape.rows - 2;
    const LatentResult one = latents.attend_invariant(device_, row, 1);
    const auto same = [&](const std::vector<float>& alone, const std::vector<float>& together) {
      const auto width = std::ssize(alone);
      EXPECT_EQ(alone, std::vector<float>(together.begin() + row * width,
                                          together.begin() + (row + 1) * width));
    };
    same(one.out, all.out);
    same(one.lse, all.lse);
  }
}

/// Expanded latents: each head has keys and values of its own, whose vectors are equally far apart, and
/// values are shorter. What follows them in their vectors is NaN.
TEST_P(LatentAttention, OfHeadsOfTheirOwnReadsTheBeginningsOfValues) {
  Device oracle = make_device("reference");
  constexpr int64_t heads = 3, rows = 37, keys = 101;
  for (const auto& [key_dim, value_dim] : {std::pair{192, 128}, {12, 7}, {128, 128}}) {
    SCOPED_TRACE(testing::Message() << key_dim << " and " << value_dim);
    Tensor q = Tensor::random({rows, heads, key_dim}, DType::fp32, 1);
    Tensor k = Tensor::random({heads, keys, key_dim}, dtype_, 2);
    std::vector<float> values = Tensor::random({heads, keys, key_dim}, dtype_, 3).values();
    for (int64_t i = 0; i < std::ssize(values); ++i)
      if (i % key_dim >= value_dim) values[i] = std::numeric_limits<float>::quiet_NaN();
    Tensor v({heads, keys, key_dim}, dtype_, values);
    Tensor scales = Tensor::filled({heads, keys}, 0.75f);
    std::vector<int64_t> positions(rows);
    std::iota(positions.begin(), positions.end(), keys - rows);
    const int64_t head_stride = keys * key_dim, cut = 40;
    const std::vector<KeyRun> runs = {{0, head_stride, cut, 0},
                                      {cut * key_dim, head_stride, keys - cut, cut}};
    const std::vector<AttentionItem> items = {{0, rows, 0, 2}};
    const float* const of_keys = dtype_ == DType::fp8 ? scales.view().as<float>() : nullptr;
    const auto attend = [&](Device& device) {
      Tensor out = Tensor::filled({rows, heads, value_dim}, 55.0f);
      Tensor lse = Tensor::filled({rows, heads}, 55.0f);
      device.backend->attention({.q = q.view(),
                                 .query_positions = positions,
                                 .items = items,
                                 .runs = runs,
                                 .keys = {k.view().data(), v.view().data(), of_keys, of_keys},
                                 .kv_dtype = dtype_,
                                 .num_kv_heads = heads,
                                 .scale = 1 / std::sqrt(static_cast<float>(key_dim)),
                                 .out = out.view(),
                                 .lse = lse.view()},
                                device.stream);
      return LatentResult{out.values(), lse.values()};
    };
    expect_close(attend(device_), attend(oracle), device_, dtype_);
  }
}

TEST_P(LatentAttention, RefusesValuesThatAreLongerThanKeys) {
  Latents latents({2, 8, 9, 1, 3}, dtype_);
  EXPECT_THROW(latents.attend(device_), InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
