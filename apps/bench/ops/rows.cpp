// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ops/rows.hpp"

namespace pecia::bench::ops {

Case embedding(const Model& model, int64_t rows) {
  const int64_t hidden = model.hidden, vocab = model.vocab;
  return {"embedding", fmt::format("{} rows of {} bf16", rows, hidden), 0,
          bytes_of({rows, hidden}, DType::bf16) + bytes_of({rows, hidden}),
          [=](const Place& place) {
            const Tensor table(place, DType::bf16, {vocab, hidden});
            const Tensor out(place, DType::fp32, {rows, hidden});
            std::vector<int32_t> tokens(rows);
            for (int64_t t = 0; t < rows; ++t) tokens[t] = static_cast<int32_t>(t * 7919 % vocab);
            return [=] { place.backend.embedding({table, tokens, out}, place.stream); };
          }};
}

Case rms_norm(const Model& model, int64_t rows) {
  const int64_t hidden = model.hidden;
  return {
      "rms_norm", fmt::format("{} × {}", rows, hidden), 0, 2 * bytes_of({rows, hidden}),
      [=](const Place& place) {
        const Tensor x(place, DType::fp32, {rows, hidden}), weight(place, DType::bf16, {hidden});
        const Tensor out(place, DType::fp32, {rows, hidden});
        return [=] { place.backend.rms_norm({x, weight, 1e-5f, out}, place.stream); };
      }};
}

Case gated_activation(const Model& model, int64_t rows, DType type) {
  const int64_t ffn = model.ffn;
  return {"gated_activation",
          fmt::format("{} × {}{}", rows, ffn,
                      type == DType::fp32 ? "" : fmt::format(" {}", name_of(type))),
          0, 3 * bytes_of({rows, ffn}, type), [=](const Place& place) {
            const Tensor gate(place, type, {rows, ffn}), up(place, type, {rows, ffn});
            const Tensor out(place, type, {rows, ffn});
            return [=] { place.backend.gated_activation({gate, up, out}, place.stream); };
          }};
}

Case xielu(const Model& model, int64_t rows) {
  const int64_t ffn = model.ffn;
  return {"xielu", fmt::format("{} × {}", rows, ffn), 0, 2 * bytes_of({rows, ffn}),
          [=](const Place& place) {
            const Tensor x(place, DType::fp32, {rows, ffn}), out(place, DType::fp32, {rows, ffn});
            return [=] { place.backend.xielu({x, out, {0.8f, 0.8f, 0.5f, -1e-6f}}, place.stream); };
          }};
}

Case add(const Model& model, int64_t rows) {
  const int64_t hidden = model.hidden;
  return {
      "add", fmt::format("{} × {}", rows, hidden), 0, 3 * bytes_of({rows, hidden}),
      [=](const Place& place) {
        const Tensor x(place, DType::fp32, {rows, hidden}), y(place, DType::fp32, {rows, hidden});
        return [=] { place.backend.add({x, y}, place.stream); };
      }};
}

Case cast(const Model& model, int64_t rows) {
  const int64_t hidden = model.hidden;
  return {
      "cast", fmt::format("{} × {}, to bf16", rows, hidden), 0, bytes_of({rows, hidden}) * 3 / 2,
      [=](const Place& place) {
        const Tensor x(place, DType::fp32, {rows, hidden}), out(place, DType::bf16, {rows, hidden});
        return [=] { place.backend.cast({x, out}, place.stream); };
      }};
}

Case sample(const Model& model, int64_t rows, const std::string& how,
            const kernels::SamplingParams& params) {
  const int64_t vocab = model.vocab;
  return {"sample", fmt::format("{} × {}, {}", rows, vocab, how), 0, bytes_of({rows, vocab}),
          [=](const Place& place) {
            // Puts most of the probability on a few hundred tokens, as text does.
            const Tensor logits(place, DType::fp32, {rows, vocab},
                                [](float value) { return 60 * value * value * value; });
            return [=, of_rows = std::vector<kernels::SamplingRow>(rows, {params, 0.5, {}, {}}),
                    tokens = std::vector<int32_t>(rows),
                    logprobs = std::vector<float>(rows)]() mutable {
              place.backend.sample({.logits = logits,
                                    .rows = of_rows,
                                    .tokens = tokens,
                                    .token_logprobs = logprobs,
                                    .top_tokens = {},
                                    .top_logprobs = {}},
                                   place.stream);
            };
          }};
}

}  // namespace pecia::bench::ops
