// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "kernels/cpu/recurrence.hpp"
#include "kernels/reference/recurrence.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::RecurrenceArgs;
using kernels::RecurrentRows;

struct Sizes {
  int64_t rows, key_heads, heads, key_dim, value_dim, states;
};

/// Keys have length one, as the families norm them, and decays are between e^-2 and 1.
struct Rows {
  Rows(const Sizes& of, bool by_delta)
      : corrects(by_delta),
        q(Tensor::random({of.rows, of.key_heads, of.key_dim}, DType::fp32, 1)),
        k(normed(of, 2)),
        v(Tensor::random({of.rows, of.heads, of.value_dim}, DType::fp32, 3)),
        decay(between({of.rows, of.heads}, -2, 0, 4)),
        strength(between({of.rows, of.heads}, 0, 1, 5)),
        states(Tensor::random({of.states, of.heads, of.key_dim, of.value_dim}, DType::fp32, 6)),
        out(Tensor::filled({of.rows, of.heads, of.value_dim}, 0)) {}

  static Tensor between(const std::vector<int64_t>& shape, float low, float high, uint64_t seed) {
    std::vector<float> values = Tensor::random(shape, DType::fp32, seed).values();
    for (float& value : values) value = low + (high - low) * (0.5f + 0.5f * std::tanh(value));
    return {shape, DType::fp32, values};
  }
  static Tensor normed(const Sizes& sizes, uint64_t seed) {
    const std::vector<int64_t> shape{sizes.rows, sizes.key_heads, sizes.key_dim};
    std::vector<float> values = Tensor::random(shape, DType::fp32, seed).values();
    for (size_t begin = 0; begin < values.size(); begin += sizes.key_dim) {
      const std::span key(&values[begin], sizes.key_dim);
      double squares = 1e-6;
      for (const float x : key) squares += double{x} * x;
      for (float& x : key) x = static_cast<float>(x / std::sqrt(squares));
    }
    return {shape, DType::fp32, values};
  }

  RecurrenceArgs args(std::span<const RecurrentRows> items) {
    return {.q = q.view(),
            .k = k.view(),
            .v = v.view(),
            .decay = decay.view(),
            .strength = strength.view(),
            .corrects = corrects,
            .items = items,
            .states = states.view(),
            .out = out.view()};
  }

  bool corrects;
  Tensor q, k, v, decay, strength, states, out;
};

void on_cpu(const RecurrenceArgs& args, int threads = 1) {
  kernels::cpu::Workspace workspace;
  kernels::cpu::recurrence(args, workspace, device::Stream(threads));
}

/// Two rows of one head with S [2, 2], from S = [[1, 2], [3, 4]].
TEST(Recurrence, DecaysThenCorrectsThenIsRead) {
  const float half = std::log(0.5f);
  for (const bool corrects : {false, true})
    for (const bool reference : {false, true}) {
      Tensor q({2, 1, 2}, DType::fp32, {1, 0, 1, 1}), k({2, 1, 2}, DType::fp32, {0, 1, 1, 0});
      Tensor v({2, 1, 2}, DType::fp32, {10, 20, 30, 40});
      Tensor decay({2, 1}, DType::fp32, {half, 0}), strength({2, 1}, DType::fp32, {0.5f, 1});
      Tensor states({1, 1, 2, 2}, DType::fp32, {1, 2, 3, 4}), out = Tensor::filled({2, 1, 2}, 0);
      const std::vector<RecurrentRows> items{{0, 2, 0}};
      const RecurrenceArgs args{q.view(), k.view(), v.view(),      decay.view(), strength.view(),
                                corrects, items,    states.view(), out.view()};
      reference ? kernels::reference::recurrence(args) : on_cpu(args);
      // Row 0: S = [[½, 1], [1½, 2]], then its second row takes in half of v, or of v less itself.
      // Row 1: the first row takes in v, or becomes v.
      const std::vector<float> expected = corrects ? std::vector<float>{30, 40, 5.75f, 11}
                                                   : std::vector<float>{30.5f, 41, 6.5f, 12};
      EXPECT_TRUE(all_close(states.values(), expected, 0, 1e-6));
      const std::vector<float> results{0.5f, 1, expected[0] + expected[2],
                                       expected[1] + expected[3]};
      EXPECT_TRUE(all_close(out.values(), results, 0, 1e-6));
    }
}

TEST(Recurrence, AgreesWithTheReference) {
  for (const bool corrects : {false, true})
    for (const Sizes& sizes : std::vector<Sizes>{{9, 1, 1, 1, 1, 3},
                                                 {9, 2, 4, 3, 7, 3},
                                                 {9, 1, 3, 8, 16, 4},
                                                 {9, 2, 2, 17, 33, 5},
                                                 {9, 4, 8, 64, 80, 3},
                                                 {40, 1, 2, 128, 128, 3}}) {
      const int64_t last = sizes.rows - 7;
      const std::vector<RecurrentRows> items{{0, 1, 2}, {1, 6, 0}, {7, 0, 1}, {7, last, 1}};
      Rows rows(sizes, corrects), expected(sizes, corrects);
      kernels::reference::recurrence(expected.args(std::span(items).subspan(0, 2)));
      kernels::reference::recurrence(expected.args(std::span(items).subspan(3)));
      const std::vector<RecurrentRows> some{items[0], items[1], items[3]};
      on_cpu(rows.args(some), 3);
      // Each element is a sum of key_dim products of about one, in fp32.
      const double error = 1e-6 * std::sqrt(static_cast<double>(sizes.key_dim));
      EXPECT_TRUE(all_close(rows.states.values(), expected.states.values(), error, 1e-5))
          << sizes.key_dim << " × " << sizes.value_dim;
      EXPECT_TRUE(all_close(rows.out.values(), expected.out.values(), 4 * error, 1e-5))
          << sizes.key_dim << " × " << sizes.value_dim;
    }
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const std::vector<float> x = a.values(), y = b.values();
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

TEST(Recurrence, HasTheSameBitsInPassesOfAnyLength) {
  const Sizes sizes{23, 2, 4, 24, 40, 2};
  for (const bool corrects : {false, true}) {
    Rows whole(sizes, corrects);
    const std::vector<RecurrentRows> all{{0, 20, 1}, {20, 3, 0}};
    on_cpu(whole.args(all));
    for (const int64_t length : {1, 2, 7, 19}) {
      Rows pieces(sizes, corrects);
      for (const RecurrentRows& item : all)
        for (int64_t done = 0; done < item.num_rows; done += length) {
          const int64_t count = std::min(length, item.num_rows - done);
          const std::vector<RecurrentRows> piece{{item.first_row + done, count, item.state}};
          on_cpu(pieces.args(piece), 2);
        }
      EXPECT_TRUE(same_bits(pieces.out, whole.out)) << length;
      EXPECT_TRUE(same_bits(pieces.states, whole.states)) << length;
    }
  }
}

/// A segment is the map S → M S + U of each head: U from a state of zero, M from the identity.
TEST(Recurrence, OfASegmentIsAffine) {
  const Sizes sizes{12, 1, 2, 16, 24, 1};
  const std::vector<RecurrentRows> item{{0, 12, 0}};
  for (const bool corrects : {false, true}) {
    Rows rows(sizes, corrects), alone(sizes, corrects);
    const std::vector<float> before = rows.states.values();
    on_cpu(rows.args(item));
    Tensor from_zero = Tensor::filled({1, 2, 16, 24}, 0);
    RecurrenceArgs args = alone.args(item);
    args.states = from_zero.view();
    args.q = args.out = TensorView();
    on_cpu(args);
    std::vector<float> identities(2 * 16 * 16);
    for (int64_t i = 0; i < 32; ++i) identities[i * 16 + i % 16] = 1;
    Tensor maps({1, 2, 16, 16}, DType::fp32, identities);
    args.states = maps.view();
    args.v = TensorView();
    on_cpu(args);
    std::vector<float> expected = from_zero.values();
    const std::vector<float> map = maps.values();
    for (int64_t head = 0; head < 2; ++head)
      for (int64_t i = 0; i < 16; ++i)
        for (int64_t j = 0; j < 24; ++j)
          for (int64_t n = 0; n < 16; ++n)
            expected[(head * 16 + i) * 24 + j] +=
                map[(head * 16 + i) * 16 + n] * before[(head * 16 + n) * 24 + j];
    EXPECT_TRUE(all_close(rows.states.values(), expected, 4e-6, 1e-5));
  }
}

TEST(Recurrence, KeepsNaNInItsColumnAlone) {
  const Sizes sizes{3, 1, 1, 8, 20, 1};
  Rows rows(sizes, true);
  std::vector<float> values = rows.v.values();
  values[20 + 5] = std::numeric_limits<float>::quiet_NaN();  // row 1, column 5
  rows.v = Tensor({3, 1, 20}, DType::fp32, values);
  const std::vector<RecurrentRows> item{{0, 3, 0}};
  on_cpu(rows.args(item));
  const std::vector<float> out = rows.out.values();
  for (int64_t row = 0; row < 3; ++row)
    for (int64_t j = 0; j < 20; ++j)
      EXPECT_EQ(std::isnan(out[row * 20 + j]), row >= 1 && j == 5) << row << ", " << j;
}

}  // namespace
}  // namespace pecia::test
