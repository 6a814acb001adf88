// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "apps/bench/ops/inputs.hpp"

namespace pecia::bench::ops {

Case embedding(const Model& model, int64_t rows);

Case rms_norm(const Model& model, int64_t rows);

/// `type` is that of all three tensors.
Case gated_activation(const Model& model, int64_t rows, DType type = DType::fp32);

Case xielu(const Model& model, int64_t rows);

Case add(const Model& model, int64_t rows);

Case cast(const Model& model, int64_t rows);

Case sample(const Model& model, int64_t rows, const std::string& how,
            const kernels::SamplingParams& params);

}  // namespace pecia::bench::ops
