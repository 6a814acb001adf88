// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_support/model_options.hpp"

#include <algorithm>

#include "apps/command_line/options.hpp"
#include "lib/ranks/parallel/expert_routes.hpp"
#include "lib/ranks/parallel/modes.hpp"
#include "lib/work/job/job.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::bench {

void add_model_options(CLI::App& app, ModelOptions& options) {
  command_line::add_option(app, {.name = "--model",
                                 .into = &options.model,
                                 .help = "Folder of the checkpoint",
                                 .required = true,
                                 .exists = command_line::Exists::folder});
  command_line::add_option(
      app,
      {.name = "--dtype",
       .into = &options.dtype,
       .help = "What matrices are rounded to at load; fp8 needs --backend cuda, int8 and int4 cpu",
       .show_default = true,
       .among = {"auto", "fp8", "int8", "int4"}});
  command_line::add_option(app, {.name = "--compute",
                                 .into = &options.compute,
                                 .help = "Products of the CPU: bf16 where it can, or fp32",
                                 .show_default = true,
                                 .among = {"auto", "fp32", "bf16"}});
  command_line::add_option(app, {.name = "--kv-dtype",
                                 .into = &options.kv_dtype,
                                 .help = "Element type of the KV cache",
                                 .show_default = true,
                                 .among = {"auto", "fp32", "bf16", "fp16", "fp8"}});
  command_line::add_option(app,
                           {.name = "--sp",
                            .into = &options.sp,
                            .help = "Ulysses degree: heads cut over so many ranks, rows before",
                            .show_default = true,
                            .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--tp",
                                 .into = &options.tp,
                                 .help = "Tensor-parallel degree; cp is what is left of the ranks",
                                 .show_default = true,
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app,
                           {.name = "--ep",
                            .into = &options.ep,
                            .help = "Ranks that experts are dealt out over, whole: 1, or sp x tp",
                            .show_default = true,
                            .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--sharding",
                                 .into = &options.sharding,
                                 .help = "Of the passes over SP x TP ranks",
                                 .show_default = true,
                                 .among = {"base", "sp_tp", "shift", "gathered"}});
  command_line::add_option(
      app,
      {.name = "--batch-tokens",
       .into = &options.batch_tokens,
       .help = "New tokens of a prefill pass, all ranks together; 0: as pecia run chooses them",
       .show_default = true,
       .sign = command_line::Sign::not_negative});
  command_line::add_option(app, {.name = "--seed",
                                 .into = &options.seed,
                                 .help = "Of the random token ids",
                                 .show_default = true});
  command_line::add_option(app, {.name = "--reproducible",
                                 .into = &options.reproducible,
                                 .help = "layout: the bits are the same on every layout",
                                 .show_default = true,
                                 .among = {"run", "layout"}});
  command_line::add_option(app, {.name = "--prepack",
                                 .into = &options.prepack,
                                 .help = "Weights of bf16 are packed before they are multiplied",
                                 .show_default = true,
                                 .among = {"auto", "no"}});
  command_line::add_option(app, {.name = "--backend",
                                 .into = &options.backend,
                                 .help = "What computes",
                                 .show_default = true,
                                 .among = {"cpu", "cuda"}});
  command_line::add_option(app, {.name = "--allow-gpu-sharing",
                                 .into = &options.allow_gpu_sharing,
                                 .help = "Several ranks on one GPU"});
  command_line::add_option(app, {.name = "--stages",
                                 .into = &options.stages,
                                 .help = "Also prints the seconds of each stage on rank 0"});
}

job::Job ModelOptions::job() const {
  job::Job job;
  job.backend = backend == "cuda" ? job::BackendKind::cuda : job::BackendKind::cpu;
  job.allow_gpu_sharing = allow_gpu_sharing;
  if (compute == "fp32") job.model.compute = job::Precision::fp32;
  if (compute == "bf16") job.model.compute = job::Precision::bf16;
  if (dtype == "fp8") job.model.dtype = job::Precision::fp8;
  if (dtype == "int8") job.model.dtype = job::Precision::int8;
  if (dtype == "int4") job.model.dtype = job::Precision::int4;
  if (reproducible == "layout") job.reproducible = parallel::Reproducible::layout;
  if (prepack == "no") job.model.prepack = false;
  job.parallel.sp = sp;
  job.parallel.tp = tp;
  job.parallel.ep = ep;
  if (batch_tokens > 0) job.batch.max_batch_tokens = batch_tokens;
  return job;
}

ReplicaSettings replica_settings(const ModelOptions& options, const LoadedModel& model, int threads,
                                 int ranks) {
  if (options.sp < 1 || options.tp < 1 || ranks % (options.sp * options.tp) != 0)
    fail<InputError>("--sp {} x --tp {} does not divide the {} ranks", options.sp, options.tp,
                     ranks);
  parallel::Setting asked{
      .degrees = {ranks / (options.sp * options.tp), options.sp, options.tp, options.ep}};
  if (options.sharding == "shift") asked.decode = parallel::DecodeMode::shift;
  asked.reproducible = options.job().reproducible;
  if (const auto refused = parallel::refusal(asked, resources::shape_of(model.config)))
    fail<InputError>("{}", refused->text());
  ReplicaSettings settings;
  settings.sp = options.sp;
  settings.tp = options.tp;
  settings.ep = options.ep;
  settings.sharding = options.sharding == "sp_tp"      ? parallel::Sharding::sp_tp
                      : options.sharding == "shift"    ? parallel::Sharding::shift
                      : options.sharding == "gathered" ? parallel::Sharding::gathered
                                                       : parallel::Sharding::base;
  settings.job = options.job();
  settings.threads = threads;
  settings.batch_tokens = resources::resolve_batch_tokens(options.job(), model.config, ranks,
                                                          options.backend == "cuda");
  settings.kv_dtype = options.kv_dtype == "fp32"   ? DType::fp32
                      : options.kv_dtype == "bf16" ? DType::bf16
                      : options.kv_dtype == "fp16" ? DType::fp16
                      : options.kv_dtype == "fp8"  ? DType::fp8
                                                   : model.weights.matrix_type();
  return settings;
}

void refuse_check_of_codes(const ModelOptions& options) {
  if (options.dtype != "auto")
    fail<InputError>(
        "--check compares with the weights as they are stored, and those of {} differ by their "
        "rounding; check with --dtype auto",
        options.dtype);
}

std::string grid(const ModelOptions& options, int ranks) {
  return fmt::format("CP {} × SP {} × TP {}{}, {}{}", ranks / (options.sp * options.tp), options.sp,
                     options.tp, options.ep > 1 ? fmt::format(" × EP {}", options.ep) : "",
                     options.sharding,
                     options.reproducible == "layout" ? ", reproducible: layout" : "");
}

double logprob_tolerance(DType kv_dtype, DType operands) {
  if (operands != DType::fp32) return 0.3;
  return kv_dtype == DType::fp32 ? 1e-3 : 5e-2;
}

Shares shares_since(comm::Communicator& world, const report::Totals& before,
                    const report::Totals& now, double seconds) {
  const double all = seconds * world.size();
  return {world.all_reduce_sum(now.comm_s - before.comm_s) / all,
          world.all_reduce_sum(now.idle_s - before.idle_s) / all};
}

Sent Sent::operator-(const Sent& before) const {
  return {total - before.total, expected_in_layers - before.expected_in_layers,
          expected_outside - before.expected_outside};
}

std::string Sent::problem(const ReplicaSettings& settings) const {
  const parallel::BlockPlace place{settings.sp, settings.tp, 0, 0, settings.ep};
  if (settings.ep > 1 && expert_peers(settings.sharding, place).size() > 1) return "";
  const double expected = expected_in_layers + expected_outside;
  return total == expected ? "" : fmt::format("{} bytes sent, {} by a phantom", total, expected);
}

Sent sent_by_all(comm::Communicator& world, Replica& replica) {
  const auto of_all = [&](int64_t mine) { return world.all_reduce_sum(static_cast<double>(mine)); };
  return {of_all(replica.traffic().bytes), of_all(replica.expected().in_layers),
          of_all(replica.expected().outside)};
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
