// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_ops/cases.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "lib/core/codes.hpp"
#include "lib/core/fp8_vector.hpp"
#include "lib/device/buffer.hpp"

namespace pecia::bench {
namespace {

using device::Buffer;

struct Model {
  std::string name;
  int64_t hidden, ffn, num_heads, num_kv_heads, head_dim, vocab;
};
const Model smol{"SmolLM2-135M", 576, 1536, 9, 3, 64, 49152};
const Model llama{"Llama-3.1-8B", 4096, 14336, 32, 8, 128, 128256};

/// A tensor in its own memory. It holds numbers in (−1, 1) that repeat after a few thousand.
struct Tensor {
  Buffer buffer;
  TensorView view;

  Tensor(const Place& place, DType dtype, std::initializer_list<int64_t> shape)
      : Tensor(place, dtype, shape, [](float value) { return value; }) {}

  template <typename Change>
  Tensor(const Place& place, DType dtype, std::initializer_list<int64_t> shape,
         const Change& change)
      : buffer(place.device, device::Memory::device) {
    view = buffer.tensor(dtype, shape);
    constexpr int64_t period = 8191;
    Buffer host(view.elements() * size_of(dtype));
    const auto number = [&](int64_t i) {
      return change(static_cast<float>(i * 7919 % period) / 4096.0f - 1.0f);
    };
    const bool integers = dtype == DType::int8 || dtype == DType::int4;
    for (int64_t i = 0; i < std::min(period, view.elements()); ++i)
      if (integers)  // any code will do
        std::memset(host.as<std::byte>() + i * size_of(dtype), static_cast<int>(100 * number(i)),
                    size_of(dtype));
      else
        store_from_float(host.data(), dtype, i, number(i));
    for (int64_t done = period; done < view.elements(); done *= 2)
      std::memcpy(host.as<std::byte>() + done * size_of(dtype), host.data(),
                  std::min(done, view.elements() - done) * size_of(dtype));
    place.device.copy(view.data(), host.data(), host.bytes(), place.stream);
    place.stream.synchronize();
  }
};

double bytes_of(std::initializer_list<int64_t> shape, DType dtype = DType::fp32) {
  double bytes = static_cast<double>(size_of(dtype));
  for (const int64_t extent : shape) bytes *= static_cast<double>(extent);
  return bytes;
}

/// Bytes of `count` vectors of a KV cache.
double vectors_bytes(int64_t count, int64_t head_dim, DType dtype) {
  return static_cast<double>(count * vector_bytes(dtype, head_dim));
}

/// Makes the call that times `op`; the call keeps the inputs.
template <typename Inputs, typename Call>
std::function<void()> keep(std::shared_ptr<Inputs> inputs, Call call) {
  return [inputs, call] { call(*inputs); };
}

/// The scales in the shape that products take.
TensorView scales_of(const TensorView& scales, DType weights) {
  if (!is_code(weights)) return {};
  return weights == DType::int4 ? scales : scales.reshape({scales.rows()});
}

/// `splits`: parts of a row-invariant sum; 0: the product is not row invariant. `result` is the type of
/// y; x has it, too.
Case linear(const Model& model, int64_t rows, int64_t out, int64_t in, DType dtype = DType::bf16,
            int splits = 0, DType result = DType::fp32) {
  struct Inputs {
    Tensor x, weight, scales, y;
  };
  return {"linear",
          fmt::format("{} rows × {}×{} {}, {}{}{}", rows, out, in, name_of(dtype), model.name,
                      splits == 0 ? "" : fmt::format(", row invariant, splits {}", splits),
                      result == DType::fp32 ? "" : fmt::format(", to {}", name_of(result))),
          2.0 * static_cast<double>(rows) * static_cast<double>(out) * static_cast<double>(in),
          bytes_of({out, row_elements(dtype, in)}, dtype) + bytes_of({out, row_scales(dtype, in)}) +
              bytes_of({rows, in}, result) + bytes_of({rows, out}, result),
          [=](const Place& place) {
            const int64_t scales = std::max<int64_t>(1, row_scales(dtype, in));
            auto inputs =
                std::make_shared<Inputs>(Inputs{{place, result, {rows, in}},
                                                {place, dtype, {out, row_elements(dtype, in)}},
                                                {place, DType::fp32, {out, scales}},
                                                {place, result, {rows, out}}});
            return keep(inputs, [=](Inputs& i) {
              place.backend.linear({.x = i.x.view,
                                    .weight = i.weight.view,
                                    .bias = {},
                                    .y = i.y.view,
                                    .row_invariant = splits == 0 ? kernels::RowInvariant::no
                                                                 : kernels::RowInvariant::yes,
                                    .splits = std::max(1, splits),
                                    .weight_scales = scales_of(i.scales.view, dtype)},
                                   place.stream);
            });
          },
          splits > 0};
}

Case quantize_rows(const Model& model, int64_t rows, int64_t columns) {
  struct Inputs {
    Tensor x, codes, scales;
  };
  return {"quantize_rows", fmt::format("{} × {} fp32, {}", rows, columns, model.name), 0,
          bytes_of({rows, columns}) + bytes_of({rows, columns}, DType::fp8),
          [=](const Place& place) {
            auto inputs = std::make_shared<Inputs>(Inputs{{place, DType::fp32, {rows, columns}},
                                                          {place, DType::fp8, {rows, columns}},
                                                          {place, DType::fp32, {rows}}});
            return keep(inputs, [place](Inputs& i) {
              place.backend.quantize_rows({i.x.view, i.codes.view, i.scales.view}, place.stream);
            });
          }};
}

/// Attention of the last `rows` of `keys` tokens of one sequence, causal. `heads` is the type of q and
/// out.
Case attention(const Model& model, int64_t rows, int64_t keys, DType dtype = DType::bf16,
               DType heads = DType::fp32) {
  struct Inputs {
    Tensor q, k, v, scales, out, lse;
    std::vector<int64_t> query_positions;
    std::vector<kernels::KeyRun> runs;
    std::vector<kernels::AttentionItem> items;
  };
  const Model m = model;
  const double pairs = static_cast<double>(rows) *
                       (static_cast<double>(keys - rows) + static_cast<double>(rows + 1) / 2);
  return {"attention",
          fmt::format("{} {}queries, {} keys, {}/{} heads of {} {}", rows,
                      heads == DType::fp32 ? "" : fmt::format("{} ", name_of(heads)), keys,
                      m.num_heads, m.num_kv_heads, m.head_dim, name_of(dtype)),
          4.0 * pairs * static_cast<double>(m.num_heads * m.head_dim),
          2 * vectors_bytes(m.num_kv_heads * keys, m.head_dim, dtype) +
              2 * bytes_of({rows, m.num_heads, m.head_dim}, heads),
          [=](const Place& place) {
            auto inputs =
                std::make_shared<Inputs>(Inputs{{place, heads, {rows, m.num_heads, m.head_dim}},
                                                {place, dtype, {m.num_kv_heads, keys, m.head_dim}},
                                                {place, dtype, {m.num_kv_heads, keys, m.head_dim}},
                                                {place, DType::fp32, {m.num_kv_heads, keys}},
                                                {place, heads, {rows, m.num_heads, m.head_dim}},
                                                {place, DType::fp32, {rows, m.num_heads}},
                                                std::vector<int64_t>(rows),
                                                {{0, keys * m.head_dim, keys, 0}},
                                                {{0, rows, 0, 1}}});
            std::iota(inputs->query_positions.begin(), inputs->query_positions.end(), keys - rows);
            return keep(inputs, [place, m, dtype](Inputs& i) {
              const float* scales = dtype == DType::fp8 ? i.scales.view.as<float>() : nullptr;
              place.backend.attention({.q = i.q.view,
                                       .query_positions = i.query_positions,
                                       .items = i.items,
                                       .runs = i.runs,
                                       .keys = {i.k.view.data(), i.v.view.data(), scales, scales},
                                       .kv_dtype = dtype,
                                       .num_kv_heads = m.num_kv_heads,
                                       .scale = 1 / std::sqrt(static_cast<float>(m.head_dim)),
                                       .out = i.out.view,
                                       .lse = i.lse.view},
                                      place.stream);
            });
          }};
}

Case embedding(const Model& model, int64_t rows) {
  struct Inputs {
    Tensor table, out;
    std::vector<int32_t> tokens;
  };
  const int64_t hidden = model.hidden, vocab = model.vocab;
  return {"embedding", fmt::format("{} rows of {} bf16", rows, hidden), 0,
          bytes_of({rows, hidden}, DType::bf16) + bytes_of({rows, hidden}),
          [=](const Place& place) {
            auto inputs = std::make_shared<Inputs>(Inputs{{place, DType::bf16, {vocab, hidden}},
                                                          {place, DType::fp32, {rows, hidden}},
                                                          std::vector<int32_t>(rows)});
            for (int64_t t = 0; t < rows; ++t)
              inputs->tokens[t] = static_cast<int32_t>(t * 7919 % vocab);
            return keep(inputs, [place](Inputs& i) {
              place.backend.embedding({i.table.view, i.tokens, i.out.view}, place.stream);
            });
          }};
}

Case rms_norm(const Model& model, int64_t rows) {
  struct Inputs {
    Tensor x, weight, out;
  };
  const int64_t hidden = model.hidden;
  return {"rms_norm", fmt::format("{} × {}", rows, hidden), 0, 2 * bytes_of({rows, hidden}),
          [=](const Place& place) {
            auto inputs = std::make_shared<Inputs>(Inputs{{place, DType::fp32, {rows, hidden}},
                                                          {place, DType::bf16, {hidden}},
                                                          {place, DType::fp32, {rows, hidden}}});
            return keep(inputs, [place](Inputs& i) {
              place.backend.rms_norm({i.x.view, i.weight.view, 1e-5f, i.out.view}, place.stream);
            });
          }};
}

Case rope(const Model& model, int64_t rows, kernels::RopePairs pairs, DType out = DType::fp32) {
  struct Inputs {
    Tensor x, cos, sin, out;
  };
  const int64_t heads = model.num_heads, head_dim = model.head_dim;
  return {"rope",
          fmt::format("{} × {} heads of {}, {}{}", rows, heads, head_dim,
                      pairs == kernels::RopePairs::halves ? "halves" : "interleaved",
                      out == DType::fp32 ? "" : fmt::format(", to {}", name_of(out))),
          0,
          bytes_of({rows, heads, head_dim}) + bytes_of({rows, heads, head_dim}, out) +
              2 * bytes_of({rows, head_dim / 2}),
          [=](const Place& place) {
            auto inputs =
                std::make_shared<Inputs>(Inputs{{place, DType::fp32, {rows, heads, head_dim}},
                                                {place, DType::fp32, {rows, head_dim / 2}},
                                                {place, DType::fp32, {rows, head_dim / 2}},
                                                {place, out, {rows, heads, head_dim}}});
            return keep(inputs, [place, pairs, out](Inputs& i) {
              const TensorView& to = out == DType::fp32 ? i.x.view : i.out.view;
              place.backend.rope({i.x.view, i.cos.view, i.sin.view, pairs, to}, place.stream);
            });
          }};
}

Case kv_store(const Model& model, int64_t rows, DType dtype) {
  struct Inputs {
    Tensor x, cache, scales;
    std::vector<int64_t> slots;
  };
  const int64_t heads = model.num_kv_heads, head_dim = model.head_dim;
  return {"kv_store", fmt::format("{} × {} heads of {} {}", rows, heads, head_dim, name_of(dtype)),
          0, bytes_of({rows, heads, head_dim}) + vectors_bytes(rows * heads, head_dim, dtype),
          [=](const Place& place) {
            auto inputs =
                std::make_shared<Inputs>(Inputs{{place, DType::fp32, {rows, heads, head_dim}},
                                                {place, dtype, {heads, rows, head_dim}},
                                                {place, DType::fp32, {heads, rows}},
                                                std::vector<int64_t>(rows)});
            std::iota(inputs->slots.begin(), inputs->slots.end(), 0);
            return keep(inputs, [place, dtype](Inputs& i) {
              const TensorView scales = dtype == DType::fp8 ? i.scales.view : TensorView();
              place.backend.kv_store({i.x.view, i.slots, i.cache.view, scales}, place.stream);
            });
          }};
}

/// Of a step of decoding, with one product for q, k and v.
Case rotate_and_store(const Model& model, int64_t rows, DType dtype) {
  struct Inputs {
    Tensor heads, cos, sin, q_out, keys, values;
    std::vector<int64_t> slots;
  };
  const int64_t num_heads = model.num_heads, kv_heads = model.num_kv_heads, dim = model.head_dim;
  const int64_t queries = num_heads * dim, keys = kv_heads * dim;
  return {
      "rotate_and_store",
      fmt::format("{} × {} and {} heads of {} {}", rows, num_heads, kv_heads, dim, name_of(dtype)),
      0,
      bytes_of({rows, 2 * queries + 2 * keys}) + bytes_of({rows, dim}) +
          vectors_bytes(2 * rows * kv_heads, dim, dtype),
      [=](const Place& place) {
        auto inputs =
            std::make_shared<Inputs>(Inputs{{place, DType::fp32, {rows, queries + 2 * keys}},
                                            {place, DType::fp32, {rows, dim / 2}},
                                            {place, DType::fp32, {rows, dim / 2}},
                                            {place, DType::fp32, {rows, num_heads, dim}},
                                            {place, dtype, {kv_heads, rows, dim}},
                                            {place, dtype, {kv_heads, rows, dim}},
                                            std::vector<int64_t>(rows)});
        std::iota(inputs->slots.begin(), inputs->slots.end(), 0);
        return keep(inputs, [=](Inputs& i) {
          place.backend.rotate_and_store({.q = i.heads.view.slice_columns(0, queries),
                                          .k = i.heads.view.slice_columns(queries, keys),
                                          .v = i.heads.view.slice_columns(queries + keys, keys),
                                          .q_norm = {},
                                          .k_norm = {},
                                          .eps = 0,
                                          .cos = i.cos.view,
                                          .sin = i.sin.view,
                                          .pairs = kernels::RopePairs::halves,
                                          .q_out = i.q_out.view,
                                          .slots = i.slots,
                                          .keys = {i.keys.view},
                                          .values = {i.values.view}},
                                         place.stream);
        });
      }};
}

/// Sums for the last rows of a prompt, which see all keys.
Case column_sums(const Model& model, int64_t rows, int64_t keys, DType dtype) {
  struct Inputs {
    Tensor q, lse, k, sums;
    std::vector<int64_t> query_positions;
  };
  const int64_t heads = model.num_heads, kv_heads = model.num_kv_heads, head_dim = model.head_dim;
  return {"column_sums",
          fmt::format("{} rows, {} keys, {}/{} heads of {} {}", rows, keys, heads, kv_heads,
                      head_dim, name_of(dtype)),
          2.0 * static_cast<double>(rows * keys * heads * head_dim),
          bytes_of({kv_heads, keys, head_dim}, dtype) + bytes_of({heads, keys}),
          [=](const Place& place) {
            auto inputs =
                std::make_shared<Inputs>(Inputs{{place, DType::fp32, {rows, heads, head_dim}},
                                                {place, DType::fp32, {rows, heads}},
                                                {place, dtype, {kv_heads, keys, head_dim}},
                                                {place, DType::fp32, {heads, keys}},
                                                std::vector<int64_t>(rows, keys)});
            return keep(inputs, [=](Inputs& i) {
              place.backend.column_sums({.q = i.q.view,
                                         .lse = i.lse.view,
                                         .query_positions = i.query_positions,
                                         .run = {0, keys * head_dim, keys, 0},
                                         .keys = {.k = i.k.view.data()},
                                         .kv_dtype = dtype,
                                         .num_kv_heads = kv_heads,
                                         .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                                         .sums = i.sums.view},
                                        place.stream);
            });
          }};
}

Case merge(const Model& model, int64_t rows) {
  struct Inputs {
    Tensor part_out, part_lse, out, lse;
  };
  const int64_t heads = model.num_heads, head_dim = model.head_dim;
  return {
      "merge", fmt::format("{} × {} heads of {}", rows, heads, head_dim), 0,
      3 * bytes_of({rows, heads, head_dim}) + 3 * bytes_of({rows, heads}), [=](const Place& place) {
        auto inputs = std::make_shared<Inputs>(Inputs{{place, DType::fp32, {rows, heads, head_dim}},
                                                      {place, DType::fp32, {rows, heads}},
                                                      {place, DType::fp32, {rows, heads, head_dim}},
                                                      {place, DType::fp32, {rows, heads}}});
        return keep(inputs, [place](Inputs& i) {
          place.backend.merge({i.part_out.view, i.part_lse.view, {}, i.out.view, i.lse.view},
                              place.stream);
        });
      }};
}

/// `type` is that of all three tensors.
Case gated_activation(const Model& model, int64_t rows, DType type = DType::fp32) {
  struct Inputs {
    Tensor gate, up, out;
  };
  const int64_t ffn = model.ffn;
  return {
      "gated_activation",
      fmt::format("{} × {}{}", rows, ffn,
                  type == DType::fp32 ? "" : fmt::format(" {}", name_of(type))),
      0, 3 * bytes_of({rows, ffn}, type), [=](const Place& place) {
        auto inputs = std::make_shared<Inputs>(Inputs{
            {place, type, {rows, ffn}}, {place, type, {rows, ffn}}, {place, type, {rows, ffn}}});
        return keep(inputs, [place](Inputs& i) {
          place.backend.gated_activation({i.gate.view, i.up.view, i.out.view}, place.stream);
        });
      }};
}

Case xielu(const Model& model, int64_t rows) {
  struct Inputs {
    Tensor x, out;
  };
  const int64_t ffn = model.ffn;
  return {"xielu", fmt::format("{} × {}", rows, ffn), 0, 2 * bytes_of({rows, ffn}),
          [=](const Place& place) {
            auto inputs = std::make_shared<Inputs>(
                Inputs{{place, DType::fp32, {rows, ffn}}, {place, DType::fp32, {rows, ffn}}});
            return keep(inputs, [place](Inputs& i) {
              place.backend.xielu({i.x.view, i.out.view, {0.8f, 0.8f, 0.5f, -1e-6f}}, place.stream);
            });
          }};
}

/// Compare with one product of twice as many columns, and with gated_activation.
Case gated_linear(const Model& model, int64_t rows, DType dtype) {
  struct Inputs {
    Tensor x, gate, up, gate_scales, up_scales, out;
  };
  const int64_t ffn = model.ffn, hidden = model.hidden;
  return {"gated_linear",
          fmt::format("{} rows × {}×{} {}, {}", rows, ffn, hidden, name_of(dtype), model.name),
          4.0 * static_cast<double>(rows) * static_cast<double>(ffn) * static_cast<double>(hidden),
          2 * bytes_of({ffn, row_elements(dtype, hidden)}, dtype) +
              2 * bytes_of({ffn, row_scales(dtype, hidden)}) +
              bytes_of({rows, hidden}, DType::bf16) + bytes_of({rows, ffn}, DType::bf16),
          [=](const Place& place) {
            const int64_t scales = std::max<int64_t>(1, row_scales(dtype, hidden));
            const auto matrix = [&] {
              return Tensor{place, dtype, {ffn, row_elements(dtype, hidden)}};
            };
            const auto scale = [&] { return Tensor{place, DType::fp32, {ffn, scales}}; };
            auto inputs = std::make_shared<Inputs>(Inputs{{place, DType::bf16, {rows, hidden}},
                                                          matrix(),
                                                          matrix(),
                                                          scale(),
                                                          scale(),
                                                          {place, DType::bf16, {rows, ffn}}});
            return keep(inputs, [=](Inputs& i) {
              place.backend.gated_linear({.x = i.x.view,
                                          .gate = i.gate.view,
                                          .up = i.up.view,
                                          .out = i.out.view,
                                          .gate_scales = scales_of(i.gate_scales.view, dtype),
                                          .up_scales = scales_of(i.up_scales.view, dtype)},
                                         place.stream);
            });
          }};
}

Case rope_tables(const Model& model, int64_t rows) {
  struct Inputs {
    Tensor cos, sin;
    std::vector<int64_t> positions;
    std::vector<int32_t> sets;
    std::vector<float> frequencies, factors;
  };
  const int64_t pairs = model.head_dim / 2;
  return {"rope_tables", fmt::format("{} × {}", rows, pairs), 0, 2 * bytes_of({rows, pairs}),
          [=](const Place& place) {
            auto inputs = std::make_shared<Inputs>(Inputs{{place, DType::fp32, {rows, pairs}},
                                                          {place, DType::fp32, {rows, pairs}},
                                                          std::vector<int64_t>(rows),
                                                          std::vector<int32_t>(rows, 0),
                                                          std::vector<float>(pairs),
                                                          {1}});
            std::iota(inputs->positions.begin(), inputs->positions.end(), int64_t{100'000});
            for (int64_t i = 0; i < pairs; ++i)
              inputs->frequencies[i] =
                  std::pow(5e5f, -static_cast<float>(i) / static_cast<float>(pairs));
            return keep(inputs, [place](Inputs& i) {
              place.backend.rope_tables(
                  {i.positions, i.sets, i.frequencies, i.factors, i.cos.view, i.sin.view},
                  place.stream);
            });
          }};
}

Case add(const Model& model, int64_t rows) {
  struct Inputs {
    Tensor x, y;
  };
  const int64_t hidden = model.hidden;
  return {"add", fmt::format("{} × {}", rows, hidden), 0, 3 * bytes_of({rows, hidden}),
          [=](const Place& place) {
            auto inputs = std::make_shared<Inputs>(
                Inputs{{place, DType::fp32, {rows, hidden}}, {place, DType::fp32, {rows, hidden}}});
            return keep(inputs, [place](Inputs& i) {
              place.backend.add({i.x.view, i.y.view}, place.stream);
            });
          }};
}

Case sample(const Model& model, int64_t rows, const std::string& how,
            const kernels::SamplingParams& params) {
  struct Inputs {
    Tensor logits;
    std::vector<kernels::SamplingRow> rows;
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;
  };
  const int64_t vocab = model.vocab;
  return {"sample", fmt::format("{} × {}, {}", rows, vocab, how), 0, bytes_of({rows, vocab}),
          [=](const Place& place) {
            auto inputs = std::make_shared<Inputs>(
                Inputs{{place,
                        DType::fp32,
                        {rows, vocab},
                        // Puts most of the probability on a few hundred tokens, as text does.
                        [](float value) { return 60 * value * value * value; }},
                       std::vector<kernels::SamplingRow>(rows, {params, 0.5, {}, {}}),
                       std::vector<int32_t>(rows),
                       std::vector<float>(rows)});
            return keep(inputs, [place](Inputs& i) {
              place.backend.sample({.logits = i.logits.view,
                                    .rows = i.rows,
                                    .tokens = i.tokens,
                                    .token_logprobs = i.logprobs,
                                    .top_tokens = {},
                                    .top_logprobs = {}},
                                   place.stream);
            });
          }};
}

}  // namespace

std::vector<Case> all_cases() {
  using kernels::RopePairs;
  return {
      linear(smol, 2048, smol.ffn, smol.hidden),
      linear(smol, 2048, smol.hidden, smol.ffn),
      linear(smol, 2048, smol.hidden, smol.hidden),
      linear(smol, 64, smol.ffn, smol.hidden),
      linear(smol, 16, smol.ffn, smol.hidden),
      linear(smol, 12, smol.ffn, smol.hidden),
      linear(smol, 8, smol.ffn, smol.hidden),
      linear(smol, 1, smol.ffn, smol.hidden),
      linear(smol, 1, smol.vocab, smol.hidden),
      linear(smol, 1, smol.vocab, smol.hidden, DType::int8),
      linear(smol, 16, smol.ffn, smol.hidden, DType::int8),
      linear(smol, 2048, smol.ffn, smol.hidden, DType::int8),
      linear(smol, 1, smol.vocab, smol.hidden, DType::int4),
      linear(smol, 16, smol.ffn, smol.hidden, DType::int4),
      linear(smol, 2048, smol.ffn, smol.hidden, DType::int4),
      linear(smol, 8192, smol.ffn, smol.hidden),
      square_product(),
      linear(llama, 512, llama.hidden, llama.hidden),
      linear(llama, 512, llama.ffn, llama.hidden),
      linear(llama, 1, llama.ffn, llama.hidden),
      linear(llama, 8, llama.ffn, llama.hidden),
      attention(smol, 2048, 2048),
      attention(smol, 8192, 8192),
      attention(smol, 512, 16384),
      attention(smol, 1, 65536),
      attention(smol, 4, 65536),
      attention(llama, 2048, 2048),
      attention(llama, 8192, 8192),
      attention(llama, 1, 32768),
      attention(llama, 2048, 2048, DType::fp8),
      attention(llama, 1, 32768, DType::fp8),
      embedding(smol, 2048),
      embedding(llama, 2048),
      rms_norm(smol, 2048),
      rms_norm(llama, 2048),
      rope(smol, 2048, RopePairs::halves),
      rope(llama, 2048, RopePairs::halves),
      rope(llama, 2048, RopePairs::interleaved),
      rope_tables(llama, 2048),
      kv_store(smol, 2048, DType::bf16),
      kv_store(llama, 8192, DType::bf16),
      kv_store(llama, 8192, DType::fp16),
      kv_store(llama, 8192, DType::fp8),
      column_sums(smol, 64, 8192, DType::bf16),
      merge(smol, 2048),
      merge(llama, 2048),
      gated_activation(smol, 2048),
      gated_activation(llama, 512),
      xielu(llama, 512),
      add(smol, 2048),
      add(llama, 512),
      sample(smol, 16, "greedy", {}),
      sample(llama, 16, "greedy", {}),
      sample(llama, 16, "temperature 0.8, top_p 0.95", {.temperature = 0.8f, .top_p = 0.95f}),
      sample(llama, 16, "temperature 0.8, top_k 50", {.temperature = 0.8f, .top_k = 50}),
  };
}

Case square_product() {
  return linear(Model{"square", 2048, 2048, 32, 32, 64, 2048}, 2048, 2048, 2048);
}

std::vector<Case> large_cases() {
  using kernels::RopePairs;
  return {
      linear(llama, 8192, llama.hidden, llama.hidden),
      linear(llama, 8192, llama.ffn, llama.hidden),
      linear(llama, 8192, llama.hidden, llama.ffn),
      linear(llama, 8192, 2 * llama.ffn, llama.hidden),
      linear(llama, 8192, 2 * llama.ffn, llama.hidden, DType::bf16, 0, DType::bf16),
      linear(llama, 1, llama.ffn, llama.hidden),
      linear(llama, 16, llama.ffn, llama.hidden),
      linear(llama, 1, 2 * llama.ffn, llama.hidden),
      linear(llama, 16, 2 * llama.ffn, llama.hidden),
      gated_linear(llama, 1, DType::bf16),
      gated_linear(llama, 16, DType::bf16),
      gated_linear(llama, 16, DType::int8),
      linear(llama, 16, llama.vocab, llama.hidden),
      linear(llama, 8192, llama.ffn, llama.hidden, DType::bf16, 1),
      linear(llama, 8192, llama.hidden, llama.ffn, DType::bf16, 8),
      linear(llama, 16, llama.ffn, llama.hidden, DType::bf16, 1),
      linear(llama, 16, llama.hidden, llama.ffn, DType::bf16, 8),
      linear(llama, 8192, llama.hidden, llama.hidden, DType::fp8),
      linear(llama, 8192, llama.ffn, llama.hidden, DType::fp8),
      linear(llama, 8192, llama.hidden, llama.ffn, DType::fp8),
      linear(llama, 16, llama.ffn, llama.hidden, DType::fp8),
      linear(llama, 16, llama.hidden, llama.ffn, DType::fp8),
      quantize_rows(llama, 8192, llama.hidden),
      quantize_rows(llama, 8192, llama.ffn),
      attention(llama, 8192, 8192, DType::bf16, DType::bf16),
      attention(llama, 32768, 32768, DType::bf16, DType::bf16),
      attention(llama, 131072, 131072, DType::bf16, DType::bf16),
      attention(llama, 2048, 32768, DType::bf16, DType::bf16),
      attention(llama, 1, 32768),
      attention(llama, 1, 131072),
      attention(llama, 2048, 32768, DType::fp8, DType::bf16),
      attention(llama, 1, 131072, DType::fp8),
      column_sums(llama, 256, 131072, DType::bf16),
      embedding(llama, 8192),
      rms_norm(llama, 8192),
      rope(llama, 8192, RopePairs::halves),
      rope(llama, 8192, RopePairs::halves, DType::bf16),
      kv_store(llama, 8192, DType::bf16),
      kv_store(llama, 8192, DType::fp8),
      rope_tables(llama, 8192),
      rotate_and_store(llama, 16, DType::bf16),
      merge(llama, 8192),
      gated_activation(llama, 8192),
      gated_activation(llama, 8192, DType::bf16),
      xielu(llama, 8192),
      sample(llama, 16, "greedy", {}),
      sample(llama, 16, "temperature 0.8, top_p 0.95", {.temperature = 0.8f, .top_p = 0.95f}),
  };
}

}  // namespace pecia::bench
