// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/plan_times.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "kernels/api/gpu_traits.hpp"
#include "lib/core/error.hpp"
#include "lib/report/format.hpp"

namespace pecia::app {
namespace {

using Json = nlohmann::ordered_json;

std::string seconds(const Json& of, const char* key) {
  return report::format_duration(of[key].get<double>());
}

std::string indented(const std::string& lines) {
  std::string text = "    ";
  for (size_t i = 0; i < lines.size(); ++i) {
    text += lines[i];
    if (lines[i] == '\n' && i + 1 < lines.size()) text += "    ";
  }
  return text;
}

/// The CPU's products, if its ranks have a peak for bf16.
DType bf16_operands(DType weights) {
  return weights != DType::fp32 ? DType::bf16 : DType::fp32;
}

}  // namespace

kernels::BackendTraits traits_of(const machines::Cluster& cluster, const job::Job& job) {
  const bool in_bf16 =
      cluster.rank.flops.contains(DType::bf16) && job.model.compute != job::Precision::fp32;
  kernels::BackendTraits traits;
  if (cluster.rank.gpu) {
    traits = kernels::gpu_traits();
  } else {
    const auto cpu = kernels::make_cpu_backend();
    traits.continues_attention = cpu->continues_attention();
    traits.merges_attention = cpu->merges_attention();
    traits.operand_type = bf16_operands;
    traits.query_type = [](DType keys, int64_t) { return bf16_operands(keys); };
  }
  if (!in_bf16) traits.operand_type = {}, traits.query_type = {};
  return traits;
}

std::string cluster_text(const Json& plan) {
  return "  by this cluster file:\n" + indented(plan["cluster"]["file"].get<std::string>());
}

std::string requests_text(const Json& chosen, size_t most) {
  std::string text;
  for (const Json& request : chosen["requests"]) {
    if (most-- == 0) return text + "    …\n";
    const Json& prefill = request["prefill"];
    const auto cached = request["cached_tokens"].get<int64_t>();
    text += fmt::format(
        "    {} tokens{}: first token after {} (products {}, attention {}, other {}, waiting for "
        "messages {}), then {} per token\n",
        request["prompt_tokens"].get<int64_t>(),
        cached > 0 ? fmt::format(" after {} cached", cached) : "", seconds(request, "ttft_s"),
        seconds(prefill, "gemm_s"), seconds(prefill, "attention_s"), seconds(prefill, "other_s"),
        seconds(prefill, "exposed_comm_s"), seconds(request, "tbt_s"));
  }
  return text;
}

}  // namespace pecia::app
