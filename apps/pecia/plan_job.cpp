// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/plan_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "apps/pecia/plan_batch.hpp"
#include "apps/pecia/plan_calibrate.hpp"
#include "apps/pecia/plan_grid.hpp"
#include "apps/pecia/plan_lengths.hpp"
#include "apps/pecia/plan_sweep.hpp"
#include "apps/pecia/plan_times.hpp"
#include "apps/pecia/printable.hpp"
#include "kernels/api/gpu_traits.hpp"
#include "lib/cluster/machine.hpp"
#include "lib/core/error.hpp"
#include "lib/core/json.hpp"
#include "lib/execute/rank_needs.hpp"
#include "lib/job/job_model.hpp"
#include "lib/machines/gpu_servers.hpp"
#include "lib/model/presets.hpp"
#include "lib/report/atomic_file.hpp"
#include "lib/report/format.hpp"
#include "lib/resources/compute_place.hpp"
#include "lib/resources/footprint.hpp"
#include "lib/resources/tuned_setting.hpp"
#include "lib/run/this_cluster.hpp"

namespace pecia::app {
namespace {

using Json = nlohmann::ordered_json;

/// How positions are scaled, and whether the job or the model says so; null: they are not.
Json scaling_of(const model::ModelConfig& config, const job::Job& job) {
  if (config.rope.scaling == model::RopeScaling::none) return {};
  return {{"type", std::string(name_of(config.rope.scaling))},
          {"factor", config.rope.factor},
          {"original_length", config.rope.original_max_positions},
          {"said_by", job.model.rope_scaling ? "job" : "model"}};
}

Json json_of(const model::ModelConfig& config, const job::Job& job) {
  return {{"path", job.model.path.string()},
          {"family", std::string(name_of(config.family))},
          {"parameters", config.parameters()},
          {"active_parameters", config.active_parameters()},
          {"layers", config.layers},
          {"num_heads", config.num_heads},
          {"num_kv_heads", config.num_kv_heads},
          {"head_dim", config.head_dim},
          {"vocab", config.vocab},
          {"length", config.max_positions},
          {"rope_scaling", scaling_of(config, job)}};
}

Json json_of(const resources::PromptFootprint& prompts, const job::Job& job) {
  return {{"requests", prompts.requests},
          {"turns", prompts.turns},
          {"tokens", prompts.tokens},
          {"new_tokens", prompts.new_tokens},
          {"longest_tokens", prompts.longest_tokens},
          {"longest_request", prompts.longest_id},
          {"over_length", parse_json<Json>(to_json(job))["limits"]["over_length"]},
          {"over_length_turns", prompts.over_length},
          {"truncated_tokens", prompts.truncated_tokens}};
}

/// Null where layers with a window send nothing, or there are none.
Json json_of(const context::WindowTotals& windows) {
  if (windows.whole_ring_bytes == 0) return {};
  return {{"sent", windows.sent_bytes}, {"whole_ring", windows.whole_ring_bytes}};
}

/// What the first rank of a replica needs and sends; its parts of what is cut are the largest.
execute::RankNeeds needs_of_first_rank(const job::Job& job, const model::ModelConfig& config,
                                       const resources::Resources& resources, DType stored) {
  const auto cpu = kernels::make_cpu_backend();
  return execute::needs_of_rank(0, job, config, resources, stored,
                                resources.gpus ? kernels::gpu_traits() : kernels::traits_of(*cpu));
}

/// The job without a file. Its prompts and its output have no meaning.
job::Job job_of_model(const PlanQuestion& question) {
  std::vector<std::string> values{"model.path=" + question.model, "input=[none.h5]", "output=none"};
  values.insert(values.end(), question.overrides.begin(), question.overrides.end());
  return job::parse_job("", "pecia plan --model", values);
}

/// The requests that are asked about, or the job's longest prompt as far as the model reads it.
std::vector<foresight::RequestShape> shapes_of(const std::vector<AskedRequests>& asked,
                                               const Json& prompts, int64_t longest) {
  std::vector<foresight::RequestShape> shapes;
  for (const AskedRequests& each : asked) shapes.push_back(each.shape);
  if (!shapes.empty()) return shapes;
  return {{std::clamp<int64_t>(prompts["longest_tokens"].get<int64_t>(), 1, longest)}};
}

/// The cluster that the question names. "this" is one rank on this machine, measured now.
machines::Cluster cluster_of(const PlanQuestion& question, const job::Job& job, int ranks) {
  if (!question.gpu.empty())
    return machines::gpu_servers(question.gpu, question.per_server).cluster;
  if (question.cluster != "this") return machines::cluster_of(question.cluster);
  if (ranks > 1)
    fail<InputError>(
        "--cluster this is one rank on this machine, not {}; write a file with mpirun -np {} pecia "
        "topology --measure --cluster-file FILE, and name that",
        ranks, ranks);
  const auto alone = comm::make_null_communicator();
  const resources::Threads threads = resources::threads_of_rank(*alone);
  const resources::ComputePlace place =
      resources::make_compute_place(job, resources::computes_on_gpus(job, *alone), threads, *alone);
  return run::measure_this_cluster(*alone, {comm::RackServerGpu{"", cluster::host_name(), 0}}, job,
                                   place, threads.cache_bytes);
}

/// What a plan says of the cluster.
Json json_of(const machines::Cluster& cluster, const PlanQuestion& question) {
  if (question.gpu.empty()) return {{"name", question.cluster}, {"file", to_yaml(cluster)}};
  const auto servers = machines::gpu_servers(question.gpu, question.per_server);
  return {{"name", servers.name}, {"file", to_yaml(cluster)}, {"assumed", servers.assumed}};
}

/// The question's cluster, fitted to runs where it names some, and how.
std::pair<machines::Cluster, Json> fitted_cluster(const PlanQuestion& question, const job::Job& job,
                                                  int ranks) {
  machines::Cluster cluster = cluster_of(question, job, ranks);
  Json calibration;
  if (!question.calibrate.empty())
    calibration = calibrate({question.calibrate.begin(), question.calibrate.end()}, cluster);
  if (!question.cluster_file.empty())
    report::write_atomically(question.cluster_file, to_yaml(cluster));
  return {std::move(cluster), std::move(calibration)};
}

/// A job that names no backend has that of the cluster.
void take_backend(job::Job& job, const machines::RankPeaks& rank) {
  const auto here = rank.gpu ? job::BackendKind::cuda : job::BackendKind::cpu;
  if (job.backend.value_or(here) != here)
    fail<InputError>("backend: {}, but the cluster's ranks ({}) are of backend {}; leave it out",
                     name_of(*job.backend), rank.name, name_of(here));
  job.backend = here;
}

std::string plural(int64_t number, const char* what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

/// What a rank sends for a prompt in layers with a window. Steps of the plan follow short prompts,
/// so they say little.
std::string windows_text(const Json& windows) {
  if (windows.is_null()) return "";
  return fmt::format("; for the prompt, layers with a window send {} in place of {} round a ring",
                     report::format_bytes(windows["sent"].get<int64_t>()),
                     report::format_bytes(windows["whole_ring"].get<int64_t>()));
}

/// Says a scaling that the model itself does not have.
std::string scaling_text(const Json& model) {
  const Json& scaling = model["rope_scaling"];
  if (scaling.is_null() || scaling["said_by"] != "job") return "";
  return fmt::format(
      "  planned with model.rope_scaling: {{type: {}, factor: {}}}, so the model reads {} tokens "
      "in "
      "place of {}\n",
      scaling["type"].get<std::string>(), scaling["factor"].get<double>(),
      model["length"].get<int64_t>(), scaling["original_length"].get<int64_t>());
}

std::string prompts_text(const Json& prompts, int64_t length) {
  if (prompts.is_null()) return "";
  if (prompts.contains("missing"))
    return fmt::format("  prompts: {}\n", prompts["missing"].get<std::string>());
  const auto number = [&](const char* key) { return prompts[key].get<int64_t>(); };
  std::string text =
      fmt::format("  prompts: {}, {}, {} tokens in all, up to {} new ones in all\n",
                  plural(number("requests"), "request"), plural(number("turns"), "turn"),
                  number("tokens"), number("new_tokens"));
  if (number("turns") > 0)
    text += fmt::format("  longest prompt: {} tokens ({}), {} of the model's length\n",
                        number("longest_tokens"),
                        printable(prompts["longest_request"].get<std::string>(), 120),
                        report::format_percent(static_cast<double>(number("longest_tokens")) /
                                               static_cast<double>(length)));
  if (const int64_t over = number("over_length_turns"); over > 0) {
    const auto how = prompts["over_length"].get<std::string>();
    text += fmt::format("  too long: {}; limits.over_length: {} {}\n", plural(over, "prompt"), how,
                        how == "fail" ? over == 1 ? "will fail it" : "will fail them"
                                      : fmt::format("will leave out {}",
                                                    plural(number("truncated_tokens"), "token")));
  }
  return text;
}

/// The job that the question names, with its prompts if it says which.
job::Job job_of(const PlanQuestion& question) {
  job::Job job = question.job_file.empty() ? job_of_model(question)
                                           : job::read_job(question.job_file, question.overrides);
  if (question.prompts.empty()) return job;
  if (!std::filesystem::exists(question.prompts))
    fail<InputError>("--requests {}: there is no such file; scripts/pecia-pack makes one",
                     question.prompts.string());
  job.input = {question.prompts};
  return job;
}

foresight::KeptDegrees kept_degrees(const PlanQuestion& question, const job::Job& job) {
  const auto named = job::named_keys(question.job_file, question.overrides);
  const job::Job::Parallel& parallel = job.parallel;
  const auto kept = [&](const char* key, std::optional<int> degree) {
    return named.contains(key) ? degree : std::nullopt;
  };
  return {kept("parallel.dp", parallel.dp), parallel.cp.degree, kept("parallel.sp", parallel.sp),
          kept("parallel.tp", parallel.tp), parallel.ep};
}

/// The asked requests, or those of the inputs.
std::unique_ptr<foresight::Batches> batches_of(const std::vector<AskedRequests>& asked,
                                               const job::Job& job,
                                               const model::ModelConfig& config,
                                               const Json& prompts, batch::Inputs* inputs) {
  if (!asked.empty()) return std::make_unique<foresight::Batches>(simulated(asked), config);
  if (inputs == nullptr)
    fail<InputError>(
        "there are no prompts to foresee{}; name some with --requests FILE.h5, or say lengths with "
        "--request PROMPT[:NEW][xCOUNT]",
        prompts.contains("missing") ? ": " + prompts["missing"].get<std::string>() : "");
  if (batch::runnable_groups(*inputs, job.batch).empty())
    refuse_without_prompts(*inputs, job, config);
  return std::make_unique<foresight::Batches>(job, *inputs, config);
}

/// Whose backend the plan is for: "job", "cluster" or "this machine" says so.
Json backend_json(bool gpus, const char* said_by) {
  return {{"name", name_of(gpus ? job::BackendKind::cuda : job::BackendKind::cpu)},
          {"said_by", said_by}};
}

std::string backend_text(const Json& backend) {
  const bool gpus = backend["name"] == name_of(job::BackendKind::cuda);
  const auto said_by = backend["said_by"].get<std::string>();
  return fmt::format("  planned for {} (backend: {}), {}\n", gpus ? "GPUs" : "CPUs",
                     backend["name"].get<std::string>(),
                     said_by == "job"       ? "as the job or --backend says"
                     : said_by == "cluster" ? "as the cluster's ranks are"
                     : gpus                 ? "as this machine has; --backend cpu plans for CPUs"
                            : "as no GPU is seen here; --backend cuda plans for GPUs");
}

/// What every plan begins with.
Json beginning_of(const Json& prompts, const job::Job& job, const model::ModelConfig& config,
                  const resources::WeightFootprint& weights, const resources::KvFootprint& kv,
                  const Json& backend) {
  return {
      {"schema", "pecia.plan/1"},
      {"backend", backend},
      {"model", json_of(config, job)},
      {"prompts", prompts},
      {"weights",
       {{"dtype", weights.types}, {"assumed", weights.assumed}, {"bytes", weights.bytes}}},
      {"kv", {{"dtype", std::string(name_of(kv.dtype))}, {"bytes_per_token", kv.bytes_per_token}}}};
}

/// The part of a swept plan that follows from the layouts.
Json sweep_of(const PlanQuestion& question, const job::Job& job, const model::ModelConfig& config,
              const machines::Cluster& cluster, const Json& prompts, batch::Inputs* inputs) {
  const std::vector<AskedRequests> requests = parse_requests(question.requests);
  refuse_long_requests(requests, job, config, job.model.path.string());
  const auto batches = batches_of(requests, job, config, prompts, inputs);
  const resources::KvFootprint kv = resources::kv_footprint(job, config, nullptr, {});
  const auto alone = comm::make_null_communicator();
  foresight::Passes passes({.job = job,
                            .config = config,
                            .cluster = cluster,
                            .weights = resources::float_type(job, config),
                            .kv = kv.dtype,
                            .traits = traits_of(cluster, job),
                            .threads = resources::threads_of_rank(*alone).count});
  foresight::SweepQuestion asked;
  asked.kept = kept_degrees(question, job);
  for (const int64_t ranks : question.ranks)
    if (std::ranges::find(asked.ranks, ranks) == asked.ranks.end())
      asked.ranks.push_back(static_cast<int>(ranks));
  if (asked.ranks.empty()) asked.ranks = {fewest_ranks(job.parallel)};
  return swept_plans(passes, *batches, asked, shapes_of(requests, prompts, config.max_positions),
                     question.trace);
}

}  // namespace

Json plan_job(const PlanQuestion& question) {
  const bool has_file = !question.job_file.empty();
  job::Job job = job_of(question);
  const model::ModelConfig config =
      question.model.empty()
          ? job::read_model_config(job)
          : job::model_config_of(job, model::config_of_preset_or_folder(question.model));
  std::optional<batch::Inputs> inputs;
  Json prompts;
  const bool own_prompts = has_file && question.prompts.empty();
  if (own_prompts) try {
      job = job::load_job(question.job_file, question.overrides);
    } catch (const InputError& error) {  // the job itself is right: its prompts are missing
      prompts["missing"] = error.what();
    }
  if (prompts.is_null() && (own_prompts || !question.prompts.empty())) {
    inputs.emplace(job, config);
    prompts = json_of(resources::prompt_footprint(job, config, *inputs), job);
  }
  if (!question.model.empty()) job.model.path = question.model;

  const int ranks = question.ranks.empty() ? fewest_ranks(job.parallel)
                                           : static_cast<int>(question.ranks.front());
  std::optional<machines::Cluster> cluster;
  Json calibration;
  if (question.on_cluster()) std::tie(cluster, calibration) = fitted_cluster(question, job, ranks);
  const char* const backend_by = cluster ? "cluster" : job.backend ? "job" : "this machine";
  if (cluster) {
    take_backend(job, cluster->rank);
    Json plan = beginning_of(prompts, job, config,
                             resources::weight_footprint(job, config, cluster->rank.gpu),
                             resources::kv_footprint(job, config, nullptr, {}),
                             backend_json(cluster->rank.gpu, backend_by));
    plan["cluster"] = json_of(*cluster, question);
    plan["calibration"] = calibration;
    plan.update(sweep_of(question, job, config, *cluster, prompts, inputs ? &*inputs : nullptr));
    return plan;
  }
  resources::Resources resources;
  // Unless the job says it, as a run on this machine would take it.
  resources.gpus = resources::computes_on_gpus(job, *comm::make_null_communicator());
  Json grid = outcome(job, config, ranks, resources);
  if (inputs && !grid.contains("refused")) try {
      const int64_t longest = resources::prompt_footprint(job, config, *inputs).longest_tokens;
      resources::settle_tuned(job, config, std::min(longest, config.max_positions), {}, resources);
      grid["why"] = resources.reasons.text();
    } catch (const InputError& error) {
      grid = {{"refused", error.what()}};
    }
  const auto weights = resources::weight_footprint(job, config, resources.gpus);
  const auto kv = resources::kv_footprint(job, config, inputs ? &*inputs : nullptr, resources);
  Json weights_of_rank, work, sent;
  if (!grid.contains("refused")) {
    resources.kv_dtype = kv.dtype;
    resources.max_sequences = kv.max_sequences;
    if (inputs)
      resources.max_sequences =
          std::clamp<int64_t>(static_cast<int64_t>(inputs->requests().size()), 1, kv.max_sequences);
    resources.max_batch_tokens = resources::resolve_batch_tokens(
        job, config, parallel::row_ranks(resources.degrees(), resources.prefill), resources.gpus);
    const DType stored = resources::float_type(job, config);
    const execute::RankNeeds needs = needs_of_first_rank(job, config, resources, stored);
    weights_of_rank = needs.weight_bytes;
    work = needs.work_bytes;
    sent = {{"prefill_tokens", resources.max_batch_tokens},
            {"prefill_pass", needs.prefill_sent_bytes},
            {"decode_sequences", resources.max_sequences},
            {"decode_step", needs.decode_sent_bytes},
            {"prefill_windows", json_of(needs.prefill_windows)},
            {"decode_windows", json_of(needs.decode_windows)}};
  }
  Json plan =
      beginning_of(prompts, job, config, weights, kv, backend_json(resources.gpus, backend_by));
  plan["kv"]["max_sequences"] = kv.max_sequences;
  const Json only{{"ranks", ranks},
                  {"cp_auto", !job.parallel.cp.degree.has_value()},
                  {"parallel", grid},
                  {"memory_bytes_per_rank",
                   {{"weights", weights_of_rank},
                    {"kv_per_token", kv.bytes_per_token_of_rank},
                    {"kv", inputs ? Json(kv.bytes_of_rank) : Json()},
                    {"kv_recent_tokens",
                     kv.recent_tokens_of_rank > 0 ? Json(kv.recent_tokens_of_rank) : Json()},
                    {"kv_allowed", job.kv.memory ? Json(*job.kv.memory) : Json()},
                    {"work", work}}},
                  {"sent_bytes_per_rank", sent}};
  plan["plans"] = Json::array({only});
  return plan;
}

Json plan_calibration(const PlanQuestion& question) {
  const auto [cluster, calibration] = fitted_cluster(question, {}, 1);
  return {{"schema", "pecia.plan/1"},
          {"cluster", json_of(cluster, question)},
          {"calibration", calibration}};
}

std::string calibration_plan_text(const Json& plan) {
  return plan["cluster"]["name"].get<std::string>() + "\n" + calibration_text(plan["calibration"]) +
         cluster_text(plan);
}

std::string plan_text(const Json& plan) {
  const auto number = [](const Json& of, const char* key) { return of[key].get<int64_t>(); };
  const auto bytes = [](const Json& of, const char* key) {
    return report::format_bytes(of[key].get<int64_t>());
  };
  const Json &model = plan["model"], &weights = plan["weights"], &kv = plan["kv"];
  std::string text = fmt::format(
      "{}: {}, {} parameters{}, {} layers, {} query and {} KV heads of {}, length {}\n",
      model["path"].get<std::string>(), model["family"].get<std::string>(),
      report::format_count(model["parameters"].get<double>()),
      number(model, "active_parameters") == number(model, "parameters")
          ? ""
          : fmt::format(" ({} of them active)",
                        report::format_count(model["active_parameters"].get<double>())),
      number(model, "layers"), number(model, "num_heads"), number(model, "num_kv_heads"),
      number(model, "head_dim"), number(model, "length"));
  text += scaling_text(model);
  text += prompts_text(plan["prompts"], number(model, "length"));
  text += backend_text(plan["backend"]);
  if (plan.contains("batch"))
    return text +
           fmt::format("  weights: {} {}; KV: {}, {} per token\n",
                       weights["dtype"].get<std::string>(), bytes(weights, "bytes"),
                       kv["dtype"].get<std::string>(), bytes(kv, "bytes_per_token")) +
           (plan["calibration"].is_null() ? "" : calibration_text(plan["calibration"])) +
           sweep_text(plan);
  const Json &chosen = plan["plans"][0], &memory = chosen["memory_bytes_per_rank"];
  text += fmt::format(
      "  weights: {} {}{}{}\n", weights["dtype"].get<std::string>(), bytes(weights, "bytes"),
      weights["assumed"].get<bool>() ? " (config.json names no type)" : "",
      memory["weights"].is_null() ? ""
                                  : fmt::format(", {} on each rank", bytes(memory, "weights")));
  text += fmt::format("  KV: {}, {} per token, {} on the rank that holds it",
                      kv["dtype"].get<std::string>(), bytes(kv, "bytes_per_token"),
                      bytes(memory, "kv_per_token"));
  if (!memory["kv"].is_null())
    text += fmt::format(
        "; up to {} on each rank ({} at once)", bytes(memory, "kv"),
        plural(std::min(number(kv, "max_sequences"), number(plan["prompts"], "requests")),
               "request"));
  if (!memory["kv_recent_tokens"].is_null())
    text += fmt::format("; layers with a window keep recent tokens alone, in {} slots",
                        number(memory, "kv_recent_tokens"));
  if (!memory["kv_allowed"].is_null())
    text += fmt::format("; kv.memory allows {}", bytes(memory, "kv_allowed"));
  if (!memory["work"].is_null()) {
    text += fmt::format("\n  passes: {} of work memory on each rank", bytes(memory, "work"));
    const Json& sent = chosen["sent_bytes_per_rank"];
    if (number(sent, "prefill_pass") > 0)
      text += fmt::format("; a rank sends {} in one of {} prompt tokens, {} in a decode step of {}",
                          bytes(sent, "prefill_pass"), number(sent, "prefill_tokens"),
                          bytes(sent, "decode_step"),
                          plural(number(sent, "decode_sequences"), "sequence"));
    text += windows_text(sent["prefill_windows"]);
  }
  text += fmt::format("\n  {}: {}", plural(number(chosen, "ranks"), "rank"),
                      outcome_text(chosen["parallel"]));
  return text;
}

}  // namespace pecia::app
