// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/plan_report.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/engine/schedule/scheduler_limits.hpp"
#include "lib/work/resources/prefix_sharing.hpp"

namespace pecia::simulation {
namespace {

using OrderedJson = nlohmann::ordered_json;

template <typename T>
OrderedJson or_null(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson();
}

/// Null for 0.
OrderedJson positive_or_null(int64_t value) {
  return value > 0 ? OrderedJson(value) : OrderedJson();
}

/// How positions are scaled, and whether the job or the model says so; null: they are not.
OrderedJson scaling_json(const model::ModelConfig& config, const job::Job& job) {
  if (config.rope.scaling == model::RopeScaling::none) return {};
  return {{"type", name_of(config.rope.scaling)},
          {"factor", config.rope.factor},
          {"original_length", config.rope.original_max_positions},
          {"said_by", job.model.rope_scaling ? "job" : "model"}};
}

OrderedJson model_json(const model::ModelConfig& config, const job::Job& job) {
  return {{"path", job.model.path.string()},
          {"family", name_of(config.family)},
          {"parameters", config.parameters()},
          {"active_parameters", config.active_parameters()},
          {"layers", config.layers},
          {"num_heads", config.num_heads},
          {"num_kv_heads", config.num_kv_heads},
          {"head_dim", config.head_dim},
          {"vocab", config.vocab},
          {"length", config.max_positions},
          {"rope_scaling", scaling_json(config, job)}};
}

OrderedJson prompts_json(const PlanReport& report) {
  if (!report.prompts_missing.empty()) return {{"missing", report.prompts_missing}};
  if (!report.prompts) return {};
  const resources::PromptFootprint& prompts = *report.prompts;
  return {{"requests", prompts.requests},
          {"turns", prompts.turns},
          {"tokens", prompts.tokens},
          {"new_tokens", prompts.new_tokens},
          {"longest_tokens", prompts.longest_tokens},
          {"longest_request", prompts.longest_id},
          {"over_length", report.over_length()},
          {"over_length_turns", prompts.over_length},
          {"truncated_tokens", prompts.truncated_tokens}};
}

/// Null where layers with a window send nothing, or there are none.
OrderedJson windows_json(const attention::WindowTotals& windows) {
  if (windows.whole_ring_bytes == 0) return {};
  return {{"sent", windows.sent_bytes}, {"whole_ring", windows.whole_ring_bytes}};
}

OrderedJson sent_json(const execute::RankNeeds& needs, const resources::Resources& resources) {
  return {{"prefill_tokens", resources.max_batch_tokens},
          {"prefill_pass", needs.prefill_sent_bytes},
          {"decode_sequences", resources.max_sequences},
          {"decode_step", needs.decode_sent_bytes},
          {"prefill_windows", windows_json(needs.prefill_windows)},
          {"decode_windows", windows_json(needs.decode_windows)}};
}

OrderedJson rank_json(const RankPlan& plan, const PlanReport& report) {
  const resources::KvFootprint& kv = report.kv;
  const auto& needs = plan.needs;
  return {{"ranks", plan.ranks},
          {"cp_auto", !report.job.parallel.cp.degree.has_value()},
          {"parallel", to_json(plan.grid)},
          {"memory_bytes_per_rank",
           {{"weights", needs ? OrderedJson(needs->weight_bytes) : OrderedJson()},
            {"kv_per_token", kv.bytes_per_token_of_rank},
            {"kv", report.prompts ? OrderedJson(kv.bytes_of_rank) : OrderedJson()},
            {"kv_recent_tokens", positive_or_null(kv.recent_tokens_of_rank)},
            {"kv_allowed", or_null(report.job.kv.memory)},
            {"work", needs ? OrderedJson(needs->work_bytes) : OrderedJson()}}},
          {"sent_bytes_per_rank", needs ? sent_json(*needs, plan.grid.resources) : OrderedJson()}};
}

OrderedJson cluster_json(const ClusterReport& report) {
  OrderedJson json{{"name", report.name}, {"file", to_yaml(report.cluster)}};
  if (!report.assumed.empty()) json["assumed"] = report.assumed;
  return json;
}

OrderedJson calibration_json(const ClusterReport& report) {
  return report.calibration ? to_json(*report.calibration) : OrderedJson();
}

OrderedJson batch_json(const BatchReport& batch) {
  return {{"requests", batch.requests},
          {"prompt_tokens", batch.prompt_tokens},
          {"new_tokens", batch.new_tokens},
          {"longest_prompt", batch.longest_prompt},
          {"prompt_tokens_of_a_request", batch.prompt_of_a_request},
          {"new_tokens_of_a_request", batch.new_of_a_request}};
}

/// The layout in the words of a job file.
OrderedJson parallel_json(const LayoutForecast& layout) {
  const job::Job::Parallel& parallel = layout.parallel;
  const auto word = [](const auto& mode) {
    return mode ? std::string(job::name_of(*mode)) : std::string("auto");
  };
  OrderedJson json{{"dp", *parallel.dp},
                   {"cp", *parallel.cp.degree},
                   {"cp_elastic", layout.resources.elastic},
                   {"sp", *parallel.sp},
                   {"tp", *parallel.tp},
                   {"ep", layout.resources.ep},
                   {"prefill", word(parallel.prefill)},
                   {"ring", word(parallel.ring)},
                   {"decode", word(parallel.decode)}};
  if (*parallel.pp > 1) json["pp"] = *parallel.pp;
  if (parallel.shift_threshold) json["shift_threshold"] = *parallel.shift_threshold;
  if (layout.resources.gather_threshold)
    json["gather_threshold"] = *layout.resources.gather_threshold;
  json["mode"] = resources::mode_name(layout.resources);
  json["why"] = layout.resources.reasons.text();
  return json;
}

OrderedJson memory_json(const RankMemory& memory, int64_t kv_per_token) {
  return {{"program", memory.program_bytes},
          {"weights", memory.weight_bytes},
          {"kv_per_token", kv_per_token},
          {"kv", memory.kv_bytes},
          {"kv_recent_tokens", positive_or_null(memory.kv_recent_tokens)},
          {"work", memory.work_bytes},
          {"free", memory.free_bytes}};
}

OrderedJson parts_json(const RankTimes& times, double divisor) {
  return {{"gemm_s", times.gemm_s / divisor},
          {"attention_s", times.attention_s / divisor},
          {"exposed_comm_s", times.exposed_comm_s / divisor},
          {"other_s", times.other_s / divisor}};
}

OrderedJson layout_json(const PlannedLayout& plan) {
  OrderedJson json{{"ranks", plan.ranks},
                   {"servers", plan.servers},
                   {"parallel", parallel_json(plan)},
                   {"fits", plan.fits()},
                   {"by_one_rank", plan.by_one_rank()},
                   {"why_not", or_null(plan.memory.why_not)},
                   {"memory_bytes_per_rank", memory_json(plan.memory, plan.kv_bytes_per_token)},
                   {"max_batch_tokens", plan.resources.max_batch_tokens},
                   {"max_sequences", plan.resources.max_sequences},
                   {"requests", OrderedJson::array()}};
  if (!plan.fits()) {
    json["would_fit"] = or_null(plan.would_fit);
    return json;
  }
  for (const auto& [shape, latency] : plan.requests)
    json["requests"].push_back({{"prompt_tokens", shape.prompt_tokens},
                                {"cached_tokens", shape.cached_tokens},
                                {"new_tokens", shape.new_tokens},
                                {"ttft_s", latency.ttft_s},
                                {"tbt_s", latency.tbt_s},
                                {"prefill", parts_json(latency.prefill, 1)}});
  const BatchEnd& end = *plan.end;
  json["end_s"] = end.end_s;
  json["end_range_s"] = {end.soonest_s, end.latest_s};
  json["gpu_hours"] = plan.gpu_hours();
  json["busy"] = end.busy;
  json["refused_turns"] = end.refused;
  const double dp = *plan.parallel.dp;
  json["phases"] = {{"prefill", parts_json(end.prefill.times, dp)},
                    {"decode", parts_json(end.decode.times, dp)},
                    {"first_touch_s", end.first_touch_s},
                    {"idle_s", (1 - end.busy) * (end.end_s - end.first_touch_s)}};
  for (size_t level = 0; level < comm::num_link_levels; ++level)
    json["bytes_by_level"][comm::link_level_names[level]] =
        std::llround(end.prefill.sent_bytes[level] + end.decode.sent_bytes[level]);
  json["limit"] = limit_of(plan);
  json["prefix_sharing"] = resources::json_of(end.sharing, plan.why_not_shared);
  return json;
}

void add_sweep(const SweepReport& sweep, OrderedJson& json) {
  json["batch"] = batch_json(sweep.batch);
  json["plans"] = OrderedJson::array();
  for (const PlannedLayout& plan : sweep.plans) json["plans"].push_back(layout_json(plan));
  json["knee"] = or_null(sweep.knee);
  json["left_out"] = {{"slower", sweep.counts.slower},
                      {"too_large", sweep.counts.too_large},
                      {"open", sweep.counts.open}};
  json["layouts"] = sweep.counts.layouts;
}

std::optional<int> knee_of(const std::vector<PlannedLayout>& plans) {
  std::map<int, double> hours;  // of the best layout on each number of ranks
  for (const PlannedLayout& plan : plans)
    if (plan.fits()) hours.try_emplace(plan.ranks, plan.gpu_hours());
  if (hours.size() < 2) return {};
  constexpr double most_per_doubling = 1.25;
  auto knee = hours.begin();
  for (auto next = std::next(knee); next != hours.end(); ++next) {
    const double doublings = std::log2(static_cast<double>(next->first) / knee->first);
    if (next->second > knee->second * std::pow(most_per_doubling, doublings)) break;
    knee = next;
  }
  return knee->first;
}

}  // namespace

GridOutcome grid_outcome(const job::Job& job, const model::ModelConfig& config, int ranks,
                         bool gpus) {
  GridOutcome outcome;
  outcome.resources.gpus = gpus;
  try {
    resources::resolve_grid(job, config, ranks, outcome.resources);
  } catch (const InputError& error) {
    outcome.refused = error.what();
    return outcome;
  }
  if (resources::may_become_elastic(job, config, outcome.resources))
    outcome.resources.reasons.add("a run takes cp elastic if it expects that to end 5 % sooner");
  if (job.parallel.phases != job::Phases::together && !job.parallel.answering)
    outcome.resources.reasons.add(fmt::format(
        "a run finds by expected times how many instances answer, here {}",
        outcome.resources.answering == 0 ? "all do" : std::to_string(outcome.resources.answering)));
  return outcome;
}

OrderedJson to_json(const GridOutcome& outcome) {
  if (!outcome.refused.empty()) return {{"refused", outcome.refused}};
  const resources::Resources& resources = outcome.resources;
  return {{"dp", resources.dp},
          {"pp", resources.pp},
          {"cp", resources.cp},
          {"sp", resources.sp},
          {"tp", resources.tp},
          {"ep", resources.ep},
          {"mode", resources::mode_name(resources)},
          {"why", resources.reasons.text()}};
}

OrderedJson to_json(const ClusterReport& report) {
  return {{"schema", "pecia.plan/1"},
          {"cluster", cluster_json(report)},
          {"calibration", calibration_json(report)}};
}

BatchReport batch_report(const Batch& batch) {
  constexpr int64_t none = std::numeric_limits<int64_t>::max();
  BatchReport report{batch.work().requests,
                     batch.work().prompt_tokens,
                     batch.work().answer_tokens,
                     batch.longest_prompt(),
                     {none, 0},
                     {none, 0}};
  const auto widen = [](std::pair<int64_t, int64_t>& range, int64_t value) {
    range = {std::min(range.first, value), std::max(range.second, value)};
  };
  for (const schedule::SimulatedRequest& request : batch.requests()) {
    int64_t prompt = 0, answers = 0;
    for (const schedule::SimulatedTurn& turn : request.turns)
      prompt += turn.prompt_tokens, answers += turn.answer_tokens;
    widen(report.prompt_of_a_request, prompt);
    widen(report.new_of_a_request, answers);
  }
  return report;
}

SweepReport sweep_report(PassCosts& costs, Batches& batches, const SweepQuestion& question,
                         const std::vector<RequestShape>& shapes) {
  Sweep found = sweep(costs, batches, question);
  const Scenario& scenario = costs.scenario();
  const int per_server = scenario.cluster.ranks_per_server;
  SweepReport report{.batch = batch_report(batches.alone()), .counts = found.counts};
  for (LayoutForecast& forecast : found.plans) {
    PlannedLayout& plan = report.plans.emplace_back(PlannedLayout{std::move(forecast)});
    plan.servers = (plan.ranks + per_server - 1) / per_server;
    plan.kv_bytes_per_token = resources::kv_bytes_of_rank(scenario.config, plan.resources);
    if (!plan.fits()) {
      plan.would_fit = would_fit(scenario, batches, question.kept, plan.ranks);
      continue;
    }
    for (const RequestShape& shape : shapes)
      plan.requests.emplace_back(shape,
                                 request_latency(costs, plan.resources, shape, plan.fidelity));
    plan.why_not_shared = batches.why_not_shared(scenario.job, plan.resources);
  }
  report.knee = knee_of(report.plans);
  return report;
}

std::string PlanReport::over_length() const {
  return parse_json<OrderedJson>(to_json(job))["limits"]["over_length"];
}

std::optional<int64_t> most_drafted(const job::Job& job) {
  const auto& drafts = job.generation.drafts;
  if (!drafts) return {};
  return drafts->value_or(schedule::DraftLimits::most_by_price);
}

double tokens_of_a_step(int64_t drafted, double accepted) {
  double tokens = 1, right = 1;
  for (int64_t i = 0; i < drafted; ++i) tokens += right *= accepted;
  return tokens;
}

OrderedJson to_json(const PlanReport& report) {
  const resources::WeightFootprint& weights = report.weights;
  OrderedJson json{
      {"schema", "pecia.plan/1"},
      {"backend",
       {{"name", name_of(report.gpus ? job::BackendKind::cuda : job::BackendKind::cpu)},
        {"said_by", report.backend_by}}},
      {"model", model_json(report.config, report.job)},
      {"prompts", prompts_json(report)},
      {"weights",
       {{"dtype", weights.types}, {"assumed", weights.assumed}, {"bytes", weights.bytes}}},
      {"kv",
       {{"dtype", name_of(report.kv.dtype)}, {"bytes_per_token", report.kv.bytes_per_token}}}};
  if (const auto most = most_drafted(report.job)) {
    json["drafts"] = {
        {"most", *most},
        {"foreseen", nullptr},
        {"note", "no one foresees which drafted tokens are right: times are without drafts"}};
    for (const double accepted : drafts_accepted)
      json["drafts"]["tokens_of_a_step"].push_back(
          {{"accepted", accepted}, {"tokens", tokens_of_a_step(*most, accepted)}});
  }
  if (report.sweep) {
    json["cluster"] = cluster_json(*report.cluster);
    json["calibration"] = calibration_json(*report.cluster);
    add_sweep(*report.sweep, json);
  } else {
    json["kv"]["max_sequences"] = report.kv.max_sequences;
    json["plans"] = OrderedJson::array({rank_json(*report.rank, report)});
  }
  return json;
}

}  // namespace pecia::simulation
