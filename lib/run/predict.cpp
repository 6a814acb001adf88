// SPDX-License-Identifier: Apache-2.0
#include "lib/run/predict.hpp"

#include <algorithm>
#include <optional>

#include "lib/base/report/format.hpp"
#include "lib/engine/schedule/simulated_requests.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/settle/batch_sample.hpp"
#include "lib/settle/measure/calibration.hpp"
#include "lib/settle/measure/deviations.hpp"
#include "lib/settle/measure/kept_cluster.hpp"
#include "lib/settle/measure/rates_by_size.hpp"
#include "lib/settle/scheduler_limits.hpp"
#include "lib/simulation/batch_end.hpp"
#include "lib/simulation/layout_forecast.hpp"

namespace pecia::run {
namespace {

using report::Prediction;

constexpr int most_ranks = 64;                  // of a replica: each is recorded and replayed
constexpr int64_t most_answer_tokens = 20'000;  // that are played: some 0.1 s

/// Why nothing is foreseen; "" if it is.
std::string why_not(const PredictionInputs& from) {
  const resources::Resources& resources = from.setup.resources;
  if (resources.gpus && from.setup.job.gpu_sharing != job::GpuSharing::no)
    return "passes of ranks that may share a GPU are not foreseen";
  if (from.setup.ranks.replica->size() > most_ranks)
    return fmt::format(
        "replicas of more than {} ranks are not foreseen at a start; pecia plan does", most_ranks);
  return "";
}

/// One share for all sizes: what this start has measured, its peak too. Collective over all ranks.
cluster_files::Cluster cluster_of_rates(const PredictionInputs& from,
                                        const attention::Compute& compute) {
  const Setup& setup = from.setup;
  const model::ModelConfig& config = setup.config;
  const resources::Resources& resources = setup.resources;
  comm::Communicator& replica = *setup.ranks.replica;
  // In a group of its own, so that the report counts the run's traffic alone.
  const auto own = replica.split(0, replica.rank());
  const auto tensors = resources::tensor_group(setup.job, *own, setup.place);
  const parallel::RingRates rates = measure::measure_rates(
      setup.world(), tensors ? *tensors : *own, compute,
      measure::attention_shape(config, resources.degrees(), resources.kv_dtype));
  const double ranks = setup.world().size();
  const double products = from.product_flops / ranks;
  const double peak = std::max({from.peak->start.best / ranks, products, rates.flops});
  const double widest = std::max(rates.bandwidth, rates.all_to_all_bandwidth);
  cluster_files::Cluster cluster;
  cluster.ranks_per_server = replica.size();
  cluster.rank = {"rates measured at the start",
                  resources.gpus,
                  {},
                  1e-9 * from.peak->bandwidth.best / ranks,
                  1};
  cluster.rank.flops[compute.backend.operand_type(from.weights.held())] = peak;
  cluster.links.fill({1e-9 * widest, 0, false});
  cluster.efficiency = {{measure::share_of(products, peak)},
                        {measure::share_of(rates.flops, peak)},
                        {1},
                        {measure::share_of(rates.bandwidth, widest)},
                        {measure::share_of(rates.all_to_all_bandwidth, widest)}};
  return cluster;
}

struct Tokens {
  int64_t prompts = 0, answers = 0;
  int64_t answered = 0;  ///< turns with an answer
};

Tokens tokens_of(const std::vector<schedule::SimulatedRequest>& requests) {
  Tokens tokens;
  for (const schedule::SimulatedRequest& request : requests)
    for (const schedule::SimulatedTurn& turn : request.turns)
      tokens.prompts += turn.prompt_tokens, tokens.answers += turn.answer_tokens,
          tokens.answered += turn.answer_tokens > 0;
  return tokens;
}

Prediction::Phase phase_of(const char* name, double seconds, int64_t tokens) {
  return {name, seconds, static_cast<double>(tokens) / seconds};
}

Prediction foreseen(const PredictionInputs& from, const cluster_files::Cluster& cluster,
                    const attention::Compute& compute) {
  const Setup& setup = from.setup;
  resources::Resources resources = setup.resources;
  const std::vector<io::TurnState> states = from.results.file->states();
  const auto all =
      schedule::simulated_requests(*from.inputs.inputs, setup.job.batch, [&](int64_t row) {
        const io::TurnState state = states.at(row);
        return state == io::TurnState::open || state == io::TurnState::partial;
      });
  const Tokens of_all = tokens_of(all);
  if (of_all.prompts == 0) return {.none = "no request can run"};
  // More never decode.
  resources.max_sequences =
      std::min(resources.max_sequences, std::max<int64_t>(1, of_all.answered));
  // A large batch is played in part, and its time is that of as many parts as it has.
  const bool in_part = of_all.answers > most_answer_tokens;
  if (in_part && setup.job.batch.arrivals == job::Arrivals::replay)
    return {.none = "arrivals are replayed, and they are too many to be played at a start"};
  // Requests may have a thousand turns each where prompts begin alike, so turns are counted.
  const int64_t most =
      std::max(2 * resources.max_sequences,
               most_answer_tokens * of_all.answered / std::max<int64_t>(1, of_all.answers));
  const auto played =
      in_part ? settle::part_of_a_replica(all, resources.dp, settle::requests_of_turns(all, most))
              : all;
  const Tokens of_played = tokens_of(played);
  if (in_part) resources.dp = 1;  // the requests are those of one replica
  const double parts = static_cast<double>(of_all.prompts + of_all.answers) /
                       static_cast<double>(of_played.prompts + of_played.answers) * resources.dp /
                       setup.resources.dp;

  simulation::PassCosts costs({.job = setup.job,
                               .config = setup.config,
                               .cluster = cluster,
                               .weights = from.weights.views().plain_type(),
                               .kv = resources.kv_dtype,
                               .traits = kernels::traits_of(compute.backend)});
  resources.shift_threshold = from.measured.shift_threshold;
  const simulation::ReplicaCostModel times(
      costs, resources, simulation::lengths_of({played, setup.config}, resources),
      simulation::Fidelity::replayed);
  schedule::SchedulerLimits limits =
      settle::scheduler_limits(setup.job, setup.config, setup.resources, from.measured, {}, {});
  limits.parking_s =
      simulation::parking_s(cluster, resources::kv_bytes_of_rank(setup.config, setup.resources));
  if (limits.decides_by_times()) limits.team_times = times.teams();
  const schedule::Simulation simulation =
      schedule::simulate(limits, times.teams(), played, resources.dp);
  // Prompts are the first to write keys and values.
  const double touch_s = simulation::first_touch_s(
      cluster.rank, resources::kv_memory_of_rank(setup.config, setup.resources));
  const double prefill_s = touch_s + parts * simulation.prefill_s;
  Prediction predicted{.seconds = from.begun_s + touch_s + parts * simulation.seconds,
                       .phases = {phase_of("prefill", prefill_s, of_all.prompts)}};
  const int64_t steps = of_all.answers - of_all.answered;  // the first token comes with the prompt
  if (simulation.decode_s > 0 && steps > 0)
    predicted.phases.push_back(phase_of("decode", parts * simulation.decode_s, steps));
  const bool forks = std::ranges::any_of(played, [](const schedule::SimulatedRequest& request) {
    return request.followup == io::Followup::fork;
  });
  if (const auto ttft = report::percentiles(simulation.ttft_s); ttft && !forks)
    predicted.ttft_p50_s = ttft->p50;
  if (setup.job.generation.drafts) predicted.without = "what drafts save";
  return predicted;
}

}  // namespace

std::optional<Prediction> predict(const PredictionInputs& from, const attention::Compute& compute) {
  const Setup& setup = from.setup;
  const std::string key = measure::ranks_key(setup.world(), compute);
  std::string why = why_not(from);
  std::optional<cluster_files::Cluster> cluster;
  if (setup.is_root()) cluster = measure::kept_cluster(key);
  if (setup.is_root() && !cluster && why.empty() && !from.peak)
    why =
        "report.peak is off, and pecia topology --measure --cluster-file was not run on these "
        "ranks";
  const bool measures =
      setup.world().all_reduce_max(setup.is_root() && !cluster && why.empty()) > 0;
  if (measures) {
    const cluster_files::Cluster measured = cluster_of_rates(from, compute);
    if (setup.is_root()) cluster = measured;
  }
  if (!setup.is_root()) return {};
  if (!why.empty()) return Prediction{.none = why};
  try {
    Prediction predicted = foreseen(from, *cluster, compute);
    predicted.ranks = key;
    predicted.by = measures ? "rates measured at the start; pecia topology --measure "
                              "--cluster-file on these ranks tells more"
                            : "the cluster that is kept for such ranks";
    return predicted;
  } catch (const Error& error) {
    return Prediction{.none = error.what()};
  }
}

std::string prediction_line(const Prediction& predicted) {
  if (!predicted.none.empty()) return fmt::format("nothing is foreseen: {}", predicted.none);
  std::string line = fmt::format("foreseen: {}", report::format_duration(predicted.seconds));
  for (const Prediction::Phase& phase : predicted.phases)
    line += fmt::format(", {} {} tok/s", phase.name, report::format_count(phase.tokens_per_s));
  line += ", if answers have their full length";
  if (!predicted.without.empty()) line += fmt::format(", without {}", predicted.without);
  return line + fmt::format("; by {}", predicted.by);
}

void keep_deviation(const report::RunReport& report, const std::string& what, spdlog::logger& log) {
  const auto path = measure::deviations_path();
  if (!path || !report.predicted || !report.predicted->none.empty()) return;
  if (report.drafts && report.drafts->tokens.accepted > 0) return;  // nobody foresaw what they save
  const auto off = [](double foreseen, double measured) { return foreseen / measured - 1; };
  measure::Deviation deviation{report.began_unix_s,
                               what,
                               report.predicted->by,
                               off(report.predicted->seconds, report.seconds),
                               {},
                               {}};
  for (const report::PhaseReport& phase : report.phases) {
    const auto& phases = report.predicted->phases;
    const auto foreseen = std::ranges::find(phases, phase.name, &Prediction::Phase::name);
    if (foreseen == phases.end() || phase.tokens == 0 || !(phase.seconds > 0)) continue;
    (phase.name == "prefill" ? deviation.prefill : deviation.decode) =
        off(foreseen->tokens_per_s, static_cast<double>(phase.tokens) / phase.seconds);
  }
  try {
    measure::add_deviation(*path, deviation);
  } catch (const SystemError& error) {
    log.warn("how far off the prediction was is not kept: {}", error.what());
  }
}

}  // namespace pecia::run
