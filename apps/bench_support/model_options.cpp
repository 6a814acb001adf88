#include "apps/bench_support/model_options.hpp"

#include <algorithm>

#include "lib/runtime/job.hpp"
#include "lib/runtime/resources.hpp"

namespace pecia::bench {

void add_model_options(CLI::App& app, ModelOptions& options) {
  app.add_option("--model", options.model, "Folder of the checkpoint")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("--kv-dtype", options.kv_dtype, "Element type of the KV cache")
      ->check(CLI::IsMember({"auto", "fp32", "bf16", "fp16"}))
      ->capture_default_str();
  app.add_option("--batch-tokens", options.batch_tokens,
                 "New tokens of a prefill pass, all ranks together; 0: as pecia run chooses them")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Of the random token ids")->capture_default_str();
  app.add_flag("--stages", options.stages, "Also prints the seconds of each stage on rank 0");
}

ReplicaSettings replica_settings(const ModelOptions& options, const LoadedModel& model, int threads,
                                 int ranks) {
  runtime::Job job;
  if (options.batch_tokens > 0) job.batch.max_batch_tokens = options.batch_tokens;
  ReplicaSettings settings;
  settings.threads = threads;
  settings.batch_tokens = runtime::resolve_batch_tokens(job, model.config, ranks);
  settings.kv_dtype = options.kv_dtype == "fp32"   ? DType::fp32
                      : options.kv_dtype == "bf16" ? DType::bf16
                      : options.kv_dtype == "fp16"
                          ? DType::fp16
                          : model.weights.layers.front().q.parts.front().weight.dtype();
  return settings;
}

double logprob_tolerance(DType kv_dtype) {
  return kv_dtype == DType::fp32 ? 1e-3 : 5e-2;
}

Shares shares_since(comm::Communicator& world, const report::Totals& before,
                    const report::Totals& now, double seconds) {
  const double all = seconds * world.size();
  return {world.all_reduce_sum(now.comm_s - before.comm_s) / all,
          world.all_reduce_sum(now.idle_s - before.idle_s) / all};
}

std::vector<std::pair<std::string, double>> stage_seconds(const std::vector<report::Stage>& before,
                                                          const std::vector<report::Stage>& now) {
  std::vector<std::pair<std::string, double>> stages;
  for (const report::Stage& stage : now) {
    double seconds = stage.seconds;
    for (const report::Stage& earlier : before)
      if (std::string_view(earlier.name) == stage.name) seconds -= earlier.seconds;
    stages.emplace_back(stage.name, seconds);
  }
  std::sort(stages.begin(), stages.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  return stages;
}

void print_stages(const Results& results,
                  const std::vector<std::pair<std::string, double>>& stages) {
  for (const auto& [name, seconds] : stages)
    results.line(fmt::format("    {:>12.3f} ms  {}", seconds * 1e3, name));
}

}  // namespace pecia::bench
