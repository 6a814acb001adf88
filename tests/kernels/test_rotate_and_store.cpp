// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::RopePairs;

PECIA_OP_TEST_OF(RotateAndStore, kv_types);

constexpr int64_t capacity = 40, kv_heads = 2;
constexpr float eps = 1e-5f;

/// The keys or the values of a layer.
struct Cache {
  DType dtype;
  Tensor vectors, scales;

  Cache(DType type, int64_t head_dim)
      : dtype(type),
        vectors({kv_heads, capacity, head_dim}, type,
                std::vector<float>(kv_heads * capacity * head_dim, -7.0f)),
        scales(Tensor::filled({kv_heads, capacity}, -7.0f)) {}
  kernels::StoredHeads view() {
    return {vectors.view(), dtype == DType::fp8 ? scales.view() : TensorView()};
  }
};

/// Heads of all three as one product gives them, or each by itself.
struct Problem {
  int64_t rows, heads, head_dim;
  Tensor q, k, v, q_norm, k_norm, cos, sin, q_out;
  Cache keys, values;
  std::vector<int64_t> slots;
  bool norms;
  RopePairs pairs;

  Problem(int64_t num_rows, int64_t num_heads, int64_t dim, int64_t half, DType kv, bool has_norms,
          RopePairs pairing, int64_t gap)
      : rows(num_rows),
        heads(num_heads),
        head_dim(dim),
        q(Tensor::random({rows, heads * head_dim}, DType::fp32, 1, gap)),
        k(Tensor::random({rows, kv_heads * head_dim}, DType::fp32, 2, gap)),
        v(Tensor::random({rows, kv_heads * head_dim}, DType::fp32, 3, gap)),
        q_norm(Tensor::random({head_dim}, DType::bf16, 4)),
        k_norm(Tensor::random({head_dim}, DType::bf16, 5)),
        cos({rows, half}, DType::fp32, cosines(rows * half, 0)),
        sin({rows, half}, DType::fp32, cosines(rows * half, 1.5707963f)),
        q_out(Tensor::filled({rows, heads, head_dim}, -7.0f)),
        keys(kv, head_dim),
        values(kv, head_dim),
        slots(rows),
        norms(has_norms),
        pairs(pairing) {
    for (int64_t t = 0; t < rows; ++t) slots[t] = (t * 37 + 11) % capacity;
  }

  static std::vector<float> cosines(int64_t count, float shift) {
    std::vector<float> angles = random_floats(count, 6, 10.0f);
    for (float& angle : angles) angle = std::cos(angle - shift);
    return angles;
  }
  bool turns() const { return cos_columns() > 0; }
  int64_t cos_columns() const {
    return static_cast<int64_t>(cos.values().size()) / std::max<int64_t>(1, rows);
  }

  kernels::RotateAndStoreArgs args() {
    return {.q = q.view(),
            .k = k.view(),
            .v = v.view(),
            .q_norm = norms ? q_norm.view() : TensorView(),
            .k_norm = norms ? k_norm.view() : TensorView(),
            .eps = eps,
            .cos = turns() ? cos.view() : TensorView(),
            .sin = turns() ? sin.view() : TensorView(),
            .pairs = pairs,
            .q_out = q_out.view(),
            .slots = slots,
            .keys = keys.view(),
            .values = values.view()};
  }

  /// The same by single ops.
  void by_single_ops(Device& device) {
    const auto finish = [&](Tensor& heads_of, const std::vector<float>& from, int64_t count,
                            Tensor& norm) {
      heads_of = Tensor({rows, count, head_dim}, DType::fp32, from);
      const TensorView each = heads_of.view().reshape({rows * count, head_dim});
      if (norms) device.backend->rms_norm({each, norm.view(), eps, each}, device.stream);
      if (turns())
        device.backend->rope({heads_of.view(), cos.view(), sin.view(), pairs, heads_of.view()},
                             device.stream);
    };
    Tensor turned = keys.scales, dense({rows, kv_heads, head_dim}, DType::fp32, v.values());
    finish(q_out, q.values(), heads, q_norm);
    finish(turned, k.values(), kv_heads, k_norm);
    const auto store = [&](Tensor& x, Cache& to) {
      device.backend->kv_store({x.view(), slots, to.view().vectors, to.view().scales},
                               device.stream);
    };
    store(turned, keys), store(dense, values);
  }
};

TEST_P(RotateAndStore, HasTheBitsOfTheSingleOpsAndWritesNothingElse) {
  for (const int64_t head_dim : {6, 17, 64, 80, 128})
    for (const int64_t heads : {2, 14})
      for (const int64_t rows : {0, 1, 5})
        for (const bool norms : {false, true})
          for (const RopePairs pairs : {RopePairs::halves, RopePairs::interleaved})
            for (const int64_t half : {int64_t{0}, head_dim / 4, head_dim / 2}) {
              Problem one(rows, heads, head_dim, half, dtype_, norms, pairs, rows % 2 == 0 ? 0 : 8);
              Problem single = one, rounded = one;
              rounded.q_out = Tensor({rows, heads, head_dim}, DType::bf16,
                                     std::vector<float>(rows * heads * head_dim, -7.0f));
              if (!device_.backend->gains_by_fewer_ops()) {
                EXPECT_THROW(device_.backend->rotate_and_store(one.args(), device_.stream),
                             Unsupported);
                continue;
              }
              SCOPED_TRACE(testing::Message() << rows << " rows, heads of " << head_dim << ", half "
                                              << half << ", norms " << norms);
              device_.backend->rotate_and_store(one.args(), device_.stream);
              single.by_single_ops(device_);
              EXPECT_EQ(one.q_out.values(), single.q_out.values());
              device_.backend->rotate_and_store(rounded.args(), device_.stream);
              std::vector<float> in_bf16 = one.q_out.values();
              for (float& value : in_bf16) value = bf16_to_float(float_to_bf16(value));
              EXPECT_EQ(rounded.q_out.values(), in_bf16);
              EXPECT_EQ(rounded.keys.vectors.values(), one.keys.vectors.values());
              EXPECT_EQ(one.keys.vectors.values(), single.keys.vectors.values());
              EXPECT_EQ(one.keys.scales.values(), single.keys.scales.values());
              EXPECT_EQ(one.values.vectors.values(), single.values.vectors.values());
              EXPECT_EQ(one.values.scales.values(), single.values.scales.values());
              EXPECT_TRUE(one.q.gaps_intact() && one.k.gaps_intact() && one.v.gaps_intact());
            }
}

TEST_P(RotateAndStore, RefusesWhatContradictsItself) {
  if (!device_.backend->gains_by_fewer_ops()) GTEST_SKIP() << "the backend has single ops only";
  const auto refused = [&](const auto& change) {
    Problem p(2, 4, 8, 4, dtype_, true, RopePairs::halves, 0);
    kernels::RotateAndStoreArgs args = p.args();
    change(args);
    EXPECT_THROW(device_.backend->rotate_and_store(args, device_.stream), InvalidArgument);
    EXPECT_EQ(p.q_out.values(), std::vector<float>(2 * 4 * 8, -7.0f));
  };
  refused([](auto& args) { args.k_norm = {}; });
  refused([](auto& args) { args.sin = {}; });
  refused([](auto& args) { args.slots = args.slots.first(1); });
  refused([](auto& args) { args.v = args.q; });
  const std::vector<int64_t> outside = {0, capacity};
  refused([&](auto& args) { args.slots = outside; });
}

}  // namespace
}  // namespace pecia::test
