// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/support/model_options.hpp"

#include "lib/work/job/job.hpp"

namespace pecia::bench {
namespace {

/// A job in the words of these options.
job::Job job_of(const ModelOptions& options) {
  const auto auto_or = [](int64_t number) { return number > 0 ? std::to_string(number) : "auto"; };
  job::Job job = job::parse_job(
      "", "the options",
      {"model.path=model", "input=prompts.h5", "output=run", "backend=" + options.backend,
       "model.compute=" + options.compute, "model.dtype=" + options.dtype,
       "model.prepack=" + std::string(options.prepack == "no" ? "false" : "auto"),
       "kv.dtype=" + options.kv_dtype, fmt::format("parallel.sp={}", options.sp),
       fmt::format("parallel.tp={}", options.tp), fmt::format("parallel.ep={}", options.ep),
       "parallel.decode=" + std::string(options.sharding == "shift" ? "shift" : "auto"),
       "batch.max_batch_tokens=" + auto_or(options.batch_tokens),
       "reproducible=" + options.reproducible, "allow_gpu_sharing=" + options.allow_gpu_sharing});
  job.model.path = options.model;
  return job;
}

parallel::Sharding sharding_of(const std::string& word) {
  using parallel::Sharding;
  return word == "sp_tp"      ? Sharding::sp_tp
         : word == "shift"    ? Sharding::shift
         : word == "gathered" ? Sharding::gathered
                              : Sharding::base;
}

}  // namespace

void add_model_options(Command& command, ModelOptions& options) {
  command.add({.name = "--model",
               .into = &options.model,
               .help = "Folder of the checkpoint",
               .required = true,
               .exists = command_line::Exists::folder});
  command.word("--dtype", &options.dtype,
               "What matrices are rounded to at load; fp8 needs --backend cuda, int8 and int4 cpu",
               {"auto", "fp8", "int8", "int4"});
  command.word("--compute", &options.compute, "Products of the CPU: bf16 where it can, or fp32",
               {"auto", "fp32", "bf16"});
  command.word("--kv-dtype", &options.kv_dtype, "Element type of the KV cache",
               {"auto", "fp32", "bf16", "fp16", "fp8"});
  command.positive("--sp", &options.sp,
                   "Ulysses degree: the number of ranks over which heads are cut, rows before");
  command.positive("--tp", &options.tp, "Tensor-parallel degree; cp is what is left of the ranks");
  command.positive("--ep", &options.ep,
                   "Ranks that experts are dealt out over, whole: 1, or sp x tp");
  command.word("--sharding", &options.sharding, "Of the passes over SP x TP ranks",
               {"base", "sp_tp", "shift", "gathered"});
  command.not_negative(
      "--batch-tokens", &options.batch_tokens,
      "New tokens of a prefill pass, all ranks together; 0: as pecia run chooses them");
  command.add({.name = "--seed",
               .into = &options.seed,
               .help = "Of the random token ids",
               .show_default = true});
  command.word("--reproducible", &options.reproducible,
               "layout: the bits are the same on every layout", {"run", "layout"});
  command.word("--prepack", &options.prepack,
               "Weights of bf16 are packed before they are multiplied", {"auto", "no"});
  command.word("--backend", &options.backend, "What computes", {"cpu", "cuda"});
  command.word("--allow-gpu-sharing", &options.allow_gpu_sharing,
               "Several ranks on one GPU, by way of their hosts; nccl: by NCCL under MPS",
               {"false", "true", "nccl"});
  command.flag("--stages", &options.stages, "Also prints the seconds of each stage on rank 0");
}

ReplicaSettings replica_settings(const ModelOptions& options, const LoadedModel& model,
                                 const Session& session) {
  const int ranks = session.world.size();
  if (ranks % (int64_t{options.sp} * options.tp) != 0)
    fail<InputError>("--sp {} x --tp {} does not divide the {} ranks", options.sp, options.tp,
                     ranks);
  ReplicaSettings settings;
  settings.job = job_of(options);
  settings.sharding = sharding_of(options.sharding);
  resources::Resources& resources = settings.resources;
  resources.gpus = resources::computes_on_gpus(settings.job, session.world);
  resources.threads.count = session.options.threads;
  resources::resolve_grid(settings.job, model.config, ranks, resources);
  resources.max_batch_tokens =
      resources::resolve_batch_tokens(settings.job, model.config, ranks, resources.gpus);
  resources.kv_dtype = resources::resolve_kv_dtype(settings.job, model.weights.matrix_type(),
                                                   model.weights.embedding.dtype());
  settings.make_room_for_states(model.config, 1);
  return settings;
}

std::string grid(const ModelOptions& options, int ranks) {
  return fmt::format("CP {} × SP {} × TP {}{}, {}{}", ranks / (options.sp * options.tp), options.sp,
                     options.tp, options.ep > 1 ? fmt::format(" × EP {}", options.ep) : "",
                     options.sharding,
                     options.reproducible == "layout" ? ", reproducible: layout" : "");
}

}  // namespace pecia::bench
