// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ops/cases.hpp"

#include "apps/bench/ops/attention.hpp"
#include "apps/bench/ops/products.hpp"
#include "apps/bench/ops/rows.hpp"

namespace pecia::bench::ops {

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
      linear(smol, 2048, smol.ffn, smol.hidden, DType::bf16, 0, DType::fp32, Packed::in_panels),
      linear(smol, 8192, smol.ffn, smol.hidden, DType::bf16, 0, DType::fp32, Packed::in_panels),
      linear(llama, 512, llama.ffn, llama.hidden, DType::bf16, 0, DType::fp32, Packed::in_panels),
      linear(square, 2048, 2048, 2048, DType::bf16, 0, DType::fp32, Packed::in_panels),
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
  return linear(square, 2048, 2048, 2048);
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
      linear(llama, 64, llama.hidden, llama.ffn, DType::fp8),
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

}  // namespace pecia::bench::ops
