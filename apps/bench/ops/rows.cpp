// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ops/rows.hpp"

#include <numeric>

namespace pecia::bench::ops {

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

Case gated_activation(const Model& model, int64_t rows, DType type) {
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

}  // namespace pecia::bench::ops
