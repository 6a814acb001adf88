// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/plan_times.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lib/core/error.hpp"
#include "lib/report/format.hpp"

namespace pecia::app {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const foresight::RequestShape& shape, const foresight::RequestTime& time) {
  return {{"prompt_tokens", shape.prompt_tokens},
          {"cached_tokens", shape.cached_tokens},
          {"new_tokens", shape.new_tokens},
          {"ttft_s", time.ttft_s},
          {"tbt_s", time.tbt_s},
          {"prefill",
           {{"gemm_s", time.prefill.gemm_s},
            {"attention_s", time.prefill.attention_s},
            {"exposed_comm_s", time.prefill.exposed_comm_s},
            {"other_s", time.prefill.other_s}}}};
}

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

}  // namespace

std::function<DType(DType)> operands_of(const machines::Cluster& cluster, const job::Job& job) {
  const bool in_bf16 =
      cluster.rank.flops.contains(DType::bf16) && job.model.compute != job::Precision::fp32;
  return [in_bf16](DType weights) {
    return in_bf16 && weights != DType::fp32 ? DType::bf16 : DType::fp32;
  };
}

std::string cluster_text(const Json& plan) {
  return "  by this cluster file:\n" + indented(plan["cluster"]["file"].get<std::string>());
}

Json times_of(const foresight::Replica& replica, const machines::Cluster& cluster,
              const std::vector<foresight::RequestShape>& shapes,
              const std::filesystem::path& trace) {
  Json times{{"fits", true}, {"why_not", nullptr}, {"requests", Json::array()}};
  for (const foresight::RequestShape& shape : shapes) {
    if (const auto why = foresight::why_not(replica, cluster, shape); why && times["fits"]) {
      times["fits"] = false;
      times["why_not"] = *why;
    }
    const foresight::RequestTime time = foresight::foresee(replica, cluster, shape);
    times["requests"].push_back(json_of(shape, time));
    if (!trace.empty() && &shape == &shapes.back())
      foresight::write_traces(replica, cluster, shape, time.ring, trace);
  }
  return times;
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

std::string times_text(const Json& plan) {
  const Json& chosen = plan["plans"][0];
  std::string text = fmt::format("  foreseen on {}, each request alone:\n",
                                 plan["cluster"]["name"].get<std::string>()) +
                     requests_text(chosen, chosen["requests"].size());
  if (!chosen["fits"].get<bool>())
    text += fmt::format("  does not fit: {}\n", chosen["why_not"].get<std::string>());
  return text + cluster_text(plan);
}

}  // namespace pecia::app
