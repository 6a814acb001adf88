// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/emulator/plain_sdpa.hpp"

#include <cmath>

#include "tests/support/late_stream.hpp"

namespace pecia::test {
namespace {

using namespace kernels::cuda;

bool sees(const SdpaShape& s, int64_t row, int64_t key) {
  const int64_t diagonal = row + s.num_keys - s.num_rows;
  switch (s.mask) {
    case Mask::full:
      return true;
    case Mask::causal:
      return key <= diagonal;
    case Mask::band:
      return key <= diagonal && key > diagonal - s.window;
    case Mask::mirror:
      return key >= row;
  }
  return false;
}

float load(const void* data, DType dtype, int64_t index) {
  return load_as_float(data, dtype, index);
}

void attend(const SdpaArgs& args) {
  const SdpaShape& s = args.shape;
  std::vector<double> weights(s.num_keys);
  for (int64_t row = 0; row < s.num_rows; ++row)
    for (int64_t head = 0; head < s.num_heads; ++head) {
      const int64_t kv_begin = head / (s.num_heads / s.num_kv_heads) * s.kv_head_stride;
      const int64_t q_begin = (row * s.num_heads + head) * s.head_dim;
      double sum = 0;
      for (int64_t key = 0; key < s.num_keys; ++key) {
        double score = 0;
        for (int64_t i = 0; i < s.head_dim; ++i)
          score += double{load(args.q, s.dtype, q_begin + i)} *
                   load(args.k, s.dtype, kv_begin + key * s.head_dim + i);
        weights[key] = sees(s, row, key) ? std::exp(score * s.scale) : 0;
        sum += weights[key];
      }
      args.lse[head * s.num_rows + row] = static_cast<float>(std::log(sum));
      for (int64_t i = 0; i < s.head_dim; ++i) {
        double value = 0;
        for (int64_t key = 0; key < s.num_keys; ++key)
          value += weights[key] * load(args.v, s.dtype, kv_begin + key * s.head_dim + i);
        store_from_float(args.out, s.dtype, q_begin + i, static_cast<float>(value / sum));
      }
    }
}

class PlainSdpa : public Sdpa {
 public:
  explicit PlainSdpa(SdpaCalls& calls) : calls_(calls) {}

  std::string name() const override { return "plain loops"; }
  bool takes(const SdpaShape& shape) override {
    return calls_.most_keys < 0 || shape.num_keys <= calls_.most_keys;
  }
  bool run(const SdpaArgs& args, device::Stream& stream) override {
    const SdpaShape& s = args.shape;
    PECIA_CHECK(s.dtype != DType::fp32 && s.head_dim % 8 == 0 && s.kv_head_stride % 8 == 0,
                "{}, heads of {}", name_of(s.dtype), s.head_dim);
    PECIA_CHECK(s.num_rows > 0 && s.num_keys > 0, "{} × {}", s.num_rows, s.num_keys);
    PECIA_CHECK(s.mask == Mask::full || s.num_rows <= s.num_keys, "{} rows on {} keys", s.num_rows,
                s.num_keys);
    for (const void* pointer : {args.q, args.k, args.v, static_cast<const void*>(args.out)})
      PECIA_CHECK(reinterpret_cast<uintptr_t>(pointer) % 16 == 0, "misaligned");
    if (calls_.most_starts == static_cast<int64_t>(calls_.run.size())) return false;
    calls_.run.push_back(s);
    submit(stream, [args] { attend(args); });
    return true;
  }

 private:
  SdpaCalls& calls_;
};

}  // namespace

std::unique_ptr<Sdpa> make_plain_sdpa(SdpaCalls& calls) {
  return std::make_unique<PlainSdpa>(calls);
}

}  // namespace pecia::test
