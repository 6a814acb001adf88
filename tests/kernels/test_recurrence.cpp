// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/kernels/same_bits.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::RecurrenceArgs;
using kernels::StateRows;

class Recurrence : public testing::TestWithParam<std::string> {
 protected:
  void run(const RecurrenceArgs& args) { device_.backend->recurrence(args, device_.stream); }

  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, Recurrence, testing::ValuesIn(every_device()), name_of_device);

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
        skip(Tensor::random({of.heads}, DType::fp32, 7)),
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

  RecurrenceArgs args(std::span<const StateRows> items) {
    return {.q = q.view(),
            .k = k.view(),
            .v = v.view(),
            .decay = decay.view(),
            .strength = strength.view(),
            .corrects = corrects,
            .items = items,
            .states = states.view(),
            .out = out.view(),
            .skip = corrects ? TensorView() : skip.view(),
            .row_invariant = row_invariant,
            .products = products};
  }

  bool corrects;
  kernels::RowInvariant row_invariant = kernels::RowInvariant::no;
  DType products = DType::fp32;
  Tensor q, k, v, decay, strength, states, skip, out;
};

struct Recurred {
  std::vector<float> states, out;
};

/// The header's formula, with states that are never rounded.
Recurred recurred(const Sizes& sizes, const Rows& rows, std::span<const StateRows> items) {
  const auto q = rows.q.values(), k = rows.k.values(), v = rows.v.values();
  const auto decay = rows.decay.values(), strength = rows.strength.values();
  const auto skip = rows.skip.values();
  Recurred result{rows.states.values(), rows.out.values()};
  const int64_t heads = sizes.heads, key_dim = sizes.key_dim, value_dim = sizes.value_dim;
  for (const StateRows& item : items)
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t j = 0; j < value_dim; ++j) {
        float* const column = &result.states[(item.state * heads + head) * key_dim * value_dim + j];
        std::vector<double> state(key_dim);
        for (int64_t i = 0; i < key_dim; ++i) state[i] = column[i * value_dim];
        for (int64_t t = item.first_row; t < item.first_row + item.num_rows; ++t) {
          const int64_t key = (t * sizes.key_heads + head * sizes.key_heads / heads) * key_dim;
          const int64_t value = (t * heads + head) * value_dim + j;
          double read = 0, out = rows.corrects ? 0 : double{skip[head]} * v[value];
          for (double& element : state) element *= std::exp(double{decay[t * heads + head]});
          for (int64_t i = 0; rows.corrects && i < key_dim; ++i) read += state[i] * k[key + i];
          for (int64_t i = 0; i < key_dim; ++i) {
            state[i] += k[key + i] * strength[t * heads + head] * (v[value] - read);
            out += state[i] * q[key + i];
          }
          result.out[value] = static_cast<float>(out);
        }
        for (int64_t i = 0; i < key_dim; ++i) column[i * value_dim] = static_cast<float>(state[i]);
      }
  return result;
}

/// Two rows of one head with S [2, 2], from S = [[1, 2], [3, 4]].
TEST_P(Recurrence, DecaysThenCorrectsThenIsRead) {
  const float half = std::log(0.5f);
  for (const bool corrects : {false, true}) {
    Tensor q({2, 1, 2}, DType::fp32, {1, 0, 1, 1}), k({2, 1, 2}, DType::fp32, {0, 1, 1, 0});
    Tensor v({2, 1, 2}, DType::fp32, {10, 20, 30, 40}), skip({1}, DType::fp32, {2});
    Tensor decay({2, 1}, DType::fp32, {half, 0}), strength({2, 1}, DType::fp32, {0.5f, 1});
    Tensor states({1, 1, 2, 2}, DType::fp32, {1, 2, 3, 4}), out = Tensor::filled({2, 1, 2}, 0);
    const std::vector<StateRows> items{{0, 2, 0}};
    run({q.view(), k.view(), v.view(), decay.view(), strength.view(), corrects, items,
         states.view(), out.view(), skip.view()});
    // Row 0: S = [[½, 1], [1½, 2]], then its second row takes in half of v, or of v less itself.
    // Row 1: the first row takes in v, or becomes v.
    const std::vector<float> expected =
        corrects ? std::vector<float>{30, 40, 5.75f, 11} : std::vector<float>{30.5f, 41, 6.5f, 12};
    EXPECT_TRUE(all_close(states.values(), expected, 0, 1e-6));
    const std::vector<float> results{20.5f, 41, 60 + expected[0] + expected[2],
                                     80 + expected[1] + expected[3]};
    EXPECT_TRUE(all_close(out.values(), results, 0, 1e-6));
  }
}

TEST_P(Recurrence, AgreesWithDouble) {
  for (const bool corrects : {false, true})
    for (const Sizes& sizes : std::vector<Sizes>{{9, 1, 1, 1, 1, 3},
                                                 {9, 2, 4, 3, 7, 3},
                                                 {9, 1, 3, 8, 16, 4},
                                                 {9, 2, 2, 17, 33, 5},
                                                 {9, 4, 8, 64, 80, 3},
                                                 {9, 1, 2, 256, 64, 3},
                                                 {40, 1, 2, 128, 128, 3}}) {
      const int64_t last = sizes.rows - 7;
      const std::vector<StateRows> items{{0, 1, 2}, {1, 6, 0}, {7, last, 1}};
      Rows rows(sizes, corrects);
      const Recurred expected = recurred(sizes, rows, items);
      run(rows.args(items));
      // With keys of length one no row makes an error larger that is there before it. So each adds
      // the rounding of its own sums over key_dim.
      const double error =
          static_cast<double>(std::max<int64_t>(6, last)) * sum_tolerance(sizes.key_dim);
      EXPECT_TRUE(all_close(rows.states.values(), expected.states, error, 1e-6))
          << sizes.key_dim << " × " << sizes.value_dim;
      EXPECT_TRUE(all_close(rows.out.values(), expected.out, error, 1e-6))
          << sizes.key_dim << " × " << sizes.value_dim;
    }
}

/// Rows that are taken in together: full chunks and ragged ones, of several sequences with states of
/// their own, one of them without rows. Products of three numbers of TF32 are within 2^-21 of their
/// size, and those of one within 2^-10; a row's own sums have the length of its keys and of a chunk.
TEST_P(Recurrence, OfManyRowsAgreesWithDouble) {
  for (const bool corrects : {false, true})
    for (const Sizes& sizes : std::vector<Sizes>{{64, 1, 1, 4, 1, 4},
                                                 {230, 2, 4, 20, 40, 4},
                                                 {150, 1, 2, 128, 72, 4},
                                                 {150, 2, 2, 68, 32, 4}})
      for (const DType products : {DType::fp32, DType::bf16}) {
        const int64_t rest = sizes.rows - 64;
        std::vector<StateRows> items{{0, 64, 2}, {0, 0, 3}};
        if (rest > 5) items.push_back({64, 5, 0}), items.push_back({69, rest - 5, 1});
        Rows rows(sizes, corrects);
        rows.products = products;
        const Recurred expected = recurred(sizes, rows, items);
        run(rows.args(items));
        const double rounding = products == DType::fp32 ? 0 : 0x1p-10;
        const double error =
            static_cast<double>(std::max<int64_t>(64, rest)) * sum_tolerance(sizes.key_dim) +
            8 * rounding;
        EXPECT_TRUE(all_close(rows.states.values(), expected.states, error, 1e-6 + rounding))
            << sizes.key_dim << " × " << sizes.value_dim << (corrects ? ", corrected" : "");
        EXPECT_TRUE(all_close(rows.out.values(), expected.out, error, 1e-6 + rounding))
            << sizes.key_dim << " × " << sizes.value_dim << (corrects ? ", corrected" : "");
      }
}

/// Decays that leave nothing of a state, next to ones that keep almost all of it: no difference of them
/// may overflow, and none may lose the digits of the small ones.
TEST_P(Recurrence, TakesDecaysOfAnySize) {
  const Sizes sizes{140, 1, 2, 32, 32, 1};
  const std::vector<StateRows> items{{0, 140, 0}};
  for (const bool corrects : {false, true}) {
    Rows rows(sizes, corrects);
    std::vector<float> decays(2 * sizes.rows);
    for (size_t i = 0; i < decays.size(); ++i) {
      constexpr float of_row[] = {-1e-4f, -1e5f, -3e-3f, -80.0f, -1e-3f, -1e-5f, -700.0f};
      const size_t row = i / 2;
      decays[i] = row < 70 ? of_row[row % 7] : row < 90 ? -90.0f : -1e-3f;
    }
    decays[2 * 20] = -std::numeric_limits<float>::infinity();
    rows.decay = Tensor({sizes.rows, 2}, DType::fp32, decays);
    const Recurred expected = recurred(sizes, rows, items);
    run(rows.args(items));
    EXPECT_TRUE(all_close(rows.states.values(), expected.states, 2e-5, 1e-5));
    EXPECT_TRUE(all_close(rows.out.values(), expected.out, 2e-5, 1e-5));
  }
}

/// Keys that are all the same, and strengths of one: each row takes away what the one before wrote, and
/// the inverse of a chunk has large entries unless it is right.
TEST_P(Recurrence, CorrectsRowsOfTheSameKey) {
  const Sizes sizes{130, 1, 1, 16, 16, 1};
  const std::vector<StateRows> items{{0, 130, 0}};
  Rows rows(sizes, true);
  rows.k = Tensor::filled(std::vector<int64_t>{sizes.rows, 1, 16}, 0.25f);
  rows.strength = Tensor::filled({sizes.rows, 1}, 1);
  rows.decay = Tensor::filled({sizes.rows, 1}, 0);
  const Recurred expected = recurred(sizes, rows, items);
  run(rows.args(items));
  EXPECT_TRUE(all_close(rows.states.values(), expected.states, 2e-5, 1e-5));
  EXPECT_TRUE(all_close(rows.out.values(), expected.out, 2e-5, 1e-5));
}

/// As long as drift would show.
TEST_P(Recurrence, OfThousandsOfRowsAgreesWithDouble) {
  const Sizes sizes{4096, 1, 1, 16, 16, 1};
  const std::vector<StateRows> items{{0, 4096, 0}};
  for (const bool corrects : {false, true}) {
    Rows rows(sizes, corrects);
    rows.decay = Rows::between({sizes.rows, 1}, -0.01f, 0, 4);
    const Recurred expected = recurred(sizes, rows, items);
    run(rows.args(items));
    const double error = 4096 * sum_tolerance(sizes.key_dim) / 8;
    EXPECT_TRUE(all_close(rows.states.values(), expected.states, error, 1e-5));
    EXPECT_TRUE(all_close(rows.out.values(), expected.out, error, 1e-5));
  }
}

TEST_P(Recurrence, OfNoRowsLeavesTheStates) {
  const Sizes sizes{0, 1, 2, 4, 6, 2};
  Rows rows(sizes, true), before(sizes, true);
  const std::vector<StateRows> items{{0, 0, 1}};
  run(rows.args(items));
  run(rows.args({}));
  EXPECT_TRUE(same_bits(rows.states, before.states));
}

/// Heads of q, k, v and out are columns of wider tensors.
TEST_P(Recurrence, TakesColumnsOfWiderTensors) {
  const Sizes sizes{5, 2, 4, 12, 20, 2};
  const std::vector<StateRows> items{{0, 5, 1}};
  Rows rows(sizes, true), same(sizes, true);
  run(rows.args(items));
  const auto widened = [&](const Tensor& x, int64_t width) {
    return Tensor({5, width}, DType::fp32, x.values(), 7);
  };
  Tensor q = widened(same.q, 24), k = widened(same.k, 24), v = widened(same.v, 80);
  Tensor out = widened(same.out, 80);
  RecurrenceArgs args = same.args(items);
  args.q = q.view(), args.k = k.view(), args.v = v.view(), args.out = out.view();
  run(args);
  EXPECT_EQ(out.values(), rows.out.values());
  EXPECT_TRUE(same_bits(same.states, rows.states));
  EXPECT_TRUE(out.gaps_intact());
}

TEST_P(Recurrence, HasTheSameBitsInPassesOfAnyLength) {
  const Sizes sizes{93, 2, 4, 24, 40, 2};
  for (const bool corrects : {false, true}) {
    Rows whole(sizes, corrects);
    whole.row_invariant = kernels::RowInvariant::yes;
    const std::vector<StateRows> all{{0, 90, 1}, {90, 3, 0}};
    run(whole.args(all));
    for (const int64_t length : {1, 7, 70}) {
      Rows pieces(sizes, corrects);
      pieces.row_invariant = kernels::RowInvariant::yes;
      for (const StateRows& item : all)
        for (int64_t done = 0; done < item.num_rows; done += length) {
          const int64_t count = std::min(length, item.num_rows - done);
          const std::vector<StateRows> piece{{item.first_row + done, count, item.state}};
          run(pieces.args(piece));
        }
      EXPECT_TRUE(same_bits(pieces.out, whole.out)) << length;
      EXPECT_TRUE(same_bits(pieces.states, whole.states)) << length;
    }
  }
}

/// A segment is the map S → M S + U of each head: U from a state of zero, M from the identity.
TEST_P(Recurrence, OfASegmentIsAffine) {
  const Sizes sizes{12, 1, 2, 16, 24, 1};
  const std::vector<StateRows> item{{0, 12, 0}};
  for (const bool corrects : {false, true}) {
    Rows rows(sizes, corrects), alone(sizes, corrects);
    const std::vector<float> before = rows.states.values();
    run(rows.args(item));
    Tensor from_zero = Tensor::filled({1, 2, 16, 24}, 0);
    RecurrenceArgs args = alone.args(item);
    args.states = from_zero.view();
    args.q = args.out = TensorView();
    run(args);
    std::vector<float> identities(2 * 16 * 16);
    for (int64_t i = 0; i < 32; ++i) identities[i * 16 + i % 16] = 1;
    Tensor maps({1, 2, 16, 16}, DType::fp32, identities);
    args.states = maps.view();
    args.v = TensorView();
    run(args);
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

TEST_P(Recurrence, KeepsNaNInItsColumnAlone) {
  const Sizes sizes{3, 1, 1, 8, 20, 1};
  Rows rows(sizes, true);
  std::vector<float> values = rows.v.values();
  values[20 + 5] = std::numeric_limits<float>::quiet_NaN();  // row 1, column 5
  rows.v = Tensor({3, 1, 20}, DType::fp32, values);
  const std::vector<StateRows> item{{0, 3, 0}};
  run(rows.args(item));
  const std::vector<float> out = rows.out.values();
  for (int64_t row = 0; row < 3; ++row)
    for (int64_t j = 0; j < 20; ++j)
      EXPECT_EQ(std::isnan(out[row * 20 + j]), row >= 1 && j == 5) << row << ", " << j;
}

TEST_P(Recurrence, RefusesWhatContradictsItsHeader) {
  const Sizes sizes{4, 1, 2, 4, 6, 2};
  Rows rows(sizes, true);
  const auto refused = [&](const StateRows& item, const TensorView& out) {
    const std::vector<StateRows> items{item};
    RecurrenceArgs args = rows.args(items);
    args.out = out;
    EXPECT_THROW(run(args), InvalidArgument);
  };
  refused({0, 4, 2}, rows.out.view());
  refused({2, 3, 0}, rows.out.view());
  refused({0, 4, 0}, rows.q.view());
}

}  // namespace
}  // namespace pecia::test
