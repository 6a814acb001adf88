// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

PECIA_OP_TEST(KvStore);

TEST_P(KvStore, PutsEachRowIntoItsSlotOfEveryHead) {
  // Two rows of two heads of two elements, into slots 2 and 0 of three.
  Tensor x({2, 2, 2}, DType::fp32, {1, 2, 3, 4, 5, 6, 7, 8});
  Tensor cache({2, 3, 2}, dtype_, std::vector<float>(12, -1.0f));
  const std::vector<int64_t> slots = {2, 0};

  device_.backend->kv_store({x.view(), slots, cache.view()}, device_.stream);

  EXPECT_EQ(cache.values(), (std::vector<float>{5, 6, -1, -1, 1, 2,  //
                                                7, 8, -1, -1, 3, 4}));
}

TEST_P(KvStore, RoundsAsTheScalarConversion) {
  std::vector<float> values = random_floats(2000, 1, 100.0f);
  for (int bit = -30; bit < 30; ++bit)  // ties, just above and just below, both signs
    for (const float fraction :
         {1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f, 1.0f + 0x1.02p-8f, 1 + 0x1p-11f})
      for (const float sign : {1.0f, -1.0f}) values.push_back(sign * std::ldexp(fraction, bit));
  for (const float special : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 65519.0f, 65520.0f, 3.4e38f,
                              0x1p-24f, 0x1p-25f, 0x1.8p-24f})
    values.insert(values.end(), 17, special);  // in vectors and in the rest
  const auto count = static_cast<int64_t>(values.size());
  Tensor x({1, 1, count}, DType::fp32, values);
  Tensor cache({1, 1, count}, dtype_, std::vector<float>(count, 0.0f));
  const std::vector<int64_t> slots = {0};

  device_.backend->kv_store({x.view(), slots, cache.view()}, device_.stream);

  EXPECT_TRUE(all_close(cache.values(), Tensor({1, 1, count}, dtype_, values).values(), 0));
}

TEST_P(KvStore, AgreesWithTheReferenceAndWritesNothingElse) {
  Device oracle = make_device("reference");
  for (const int64_t head_dim : {1, 8, 17, 64, 80, 128})
    for (const int64_t rows : {0, 1, 100}) {
      const int64_t capacity = 130;
      Tensor x = Tensor::random({rows, 3, head_dim}, DType::fp32, 7);
      Tensor cache({3, capacity, head_dim}, dtype_,
                   std::vector<float>(3 * capacity * head_dim, -7.0f));
      Tensor expected = cache;
      std::vector<int64_t> slots(rows);
      for (int64_t t = 0; t < rows; ++t) slots[t] = (t * 37 + 11) % capacity;
      device_.backend->kv_store({x.view(), slots, cache.view()}, device_.stream);
      oracle.backend->kv_store({x.view(), slots, expected.view()}, oracle.stream);
      EXPECT_EQ(cache.values(), expected.values()) << "head_dim " << head_dim;
    }
}

TEST_P(KvStore, RefusesASlotOutsideBeforeWriting) {
  Tensor x = Tensor::filled({2, 1, 2}, 5);
  Tensor cache({1, 3, 2}, dtype_, std::vector<float>(6, -1.0f));
  for (const int64_t outside : {int64_t{-1}, int64_t{3}}) {
    const std::vector<int64_t> slots = {0, outside};
    EXPECT_THROW(device_.backend->kv_store({x.view(), slots, cache.view()}, device_.stream),
                 InvalidArgument);
  }
  EXPECT_EQ(cache.values(), std::vector<float>(6, -1.0f));
}

constexpr DType fp8_alone[] = {DType::fp8};
PECIA_OP_TEST_OF(KvStoreOfFp8, fp8_alone);

/// A cache of fp8, of which nothing is written yet.
struct ScaledCache {
  Tensor codes, scales;

  ScaledCache(int64_t heads, int64_t capacity, int64_t head_dim)
      : codes({heads, capacity, head_dim}, DType::fp8,
              std::vector<float>(heads * capacity * head_dim, -7.0f)),
        scales(Tensor::filled({heads, capacity}, -7.0f)) {}

  void store(Tensor& x, const std::vector<int64_t>& slots, Device& device) {
    device.backend->kv_store({x.view(), slots, codes.view(), scales.view()}, device.stream);
  }
};

TEST_P(KvStoreOfFp8, ScalesEachRowOfEachHeadByItsGreatest) {
  // Two rows of two heads of three elements, into slots 2 and 0 of three; 2⁻⁹ is the least code.
  Tensor x({2, 2, 3}, DType::fp32,
           {448, -224, 0x1p-9f, 0, 0, 0,  //
            3.5f, 1.75f, -0.875f, -896, 2, 0x1p-8f});
  ScaledCache cache(2, 3, 3);
  cache.store(x, {2, 0}, device_);
  constexpr float none = -7, least = std::numeric_limits<float>::min();
  EXPECT_EQ(cache.scales.values(), (std::vector<float>{0x1p-7f, none, 1.0f, 2.0f, none, least}));
  EXPECT_EQ(cache.codes.values(),
            (std::vector<float>{448, 224, -112, none, none, none, 448, -224, 0x1p-9f,  //
                                -448, 1, 0x1p-9f, none, none, none, 0, 0, 0}));
}

TEST_P(KvStoreOfFp8, RoundsAsTheScalarConversion) {
  std::vector<float> values = {448};  // so that the scale is 1
  for (int code = 0; code < 0x7e; ++code) {
    const float low = fp8_to_float(static_cast<uint8_t>(code));
    const float high = fp8_to_float(static_cast<uint8_t>(code + 1));
    const float tie = low + (high - low) / 2;
    for (const float value : {low, tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 500.0f)})
      for (const float sign : {1.0f, -1.0f}) values.push_back(sign * value);
  }
  const auto count = static_cast<int64_t>(values.size());
  Tensor x({1, 1, count}, DType::fp32, values);
  ScaledCache cache(1, 1, count);
  cache.store(x, {0}, device_);
  EXPECT_EQ(cache.scales.values(), std::vector<float>{1.0f});
  EXPECT_EQ(cache.codes.values(), Tensor({count}, DType::fp8, values).values());
}

TEST_P(KvStoreOfFp8, HasTheBitsOfTheReferenceAndWritesNothingElse) {
  Device oracle = make_device("reference");
  for (const int64_t head_dim : {1, 4, 6, 8, 17, 64, 80, 128, 256})
    for (const int64_t rows : {0, 1, 100})
      for (const float magnitude : {1.0f, 1e-30f, 1e-38f, 1e-42f, 3e37f}) {
        const int64_t capacity = 130;
        Tensor x({rows, 3, head_dim}, DType::fp32,
                 random_floats(rows * 3 * head_dim, 7, magnitude));
        ScaledCache cache(3, capacity, head_dim), expected = cache;
        std::vector<int64_t> slots(rows);
        for (int64_t t = 0; t < rows; ++t) slots[t] = (t * 37 + 11) % capacity;
        cache.store(x, slots, device_);
        expected.store(x, slots, oracle);
        EXPECT_EQ(cache.codes.values(), expected.codes.values()) << "head_dim " << head_dim;
        EXPECT_EQ(cache.scales.values(), expected.scales.values()) << "head_dim " << head_dim;
      }
}

TEST_P(KvStoreOfFp8, MarksAVectorThatHoldsNoNumberByItsScale) {
  for (const float special : {NAN, -NAN, INFINITY, -INFINITY})
    for (const int64_t at : {0, 5, 16, 18}) {
      std::vector<float> values = random_floats(2 * 19, 3);
      values[at] = special;  // in the first of two heads
      Tensor x({1, 2, 19}, DType::fp32, values);
      ScaledCache cache(2, 1, 19);
      cache.store(x, {0}, device_);
      EXPECT_TRUE(std::isnan(cache.scales.values()[0])) << special << " at " << at;
      EXPECT_GT(cache.scales.values()[1], 0);
    }
}

TEST_P(KvStoreOfFp8, RefusesACacheWithoutScalesAndScalesWithoutFp8) {
  Tensor x = Tensor::filled({1, 1, 2}, 5), scales = Tensor::filled({1, 3}, 1);
  Tensor codes({1, 3, 2}, DType::fp8, std::vector<float>(6, -1.0f));
  Tensor numbers({1, 3, 2}, DType::bf16, std::vector<float>(6, -1.0f));
  const std::vector<int64_t> slots = {0};
  EXPECT_THROW(device_.backend->kv_store({x.view(), slots, codes.view()}, device_.stream),
               InvalidArgument);
  EXPECT_THROW(
      device_.backend->kv_store({x.view(), slots, numbers.view(), scales.view()}, device_.stream),
      InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
