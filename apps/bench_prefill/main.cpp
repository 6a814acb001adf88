// SPDX-License-Identifier: Apache-2.0
/// Times prefills of random prompts, on request after a cache of random keys and values. It prints
/// tokens/s, share of the floor (FLOPs / the matrix product's measured FLOP/s), the bytes sent and
/// those of phantom ranks, what should travel by the rule, and how well each time follows from the
/// others. --check compares the log-probabilities after the prompt with the results of one rank
/// alone, which reads the prompt in two passes, with an fp32 cache after random keys and values.

#include <algorithm>

#include "apps/bench_support/agreement.hpp"
#include "apps/bench_support/floors.hpp"
#include "apps/bench_support/held_out.hpp"
#include "apps/bench_support/model_options.hpp"
#include "apps/bench_support/work.hpp"
#include "apps/command_line/options.hpp"
#include "lib/base/core/fp8_vector.hpp"
#include "lib/base/report/format.hpp"
#include "lib/base/report/memory.hpp"
#include "lib/engine/schedule/team_times.hpp"

namespace pecia::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  ModelOptions model;
  std::vector<int64_t> tokens = {512, 2048, 8192};
  int64_t cached = 0, total = 0;
  int warmups = 1;
  std::string ring = "pass_kv";
  int drop = 0;  ///< per cent
  int levels = 0, micro = 1;
};

void add_options(CLI::App& app, Options& options) {
  add_model_options(app, options.model);
  command_line::add_option(app, {.name = "--tokens",
                                 .into = &options.tokens,
                                 .help = "Lengths of the prompts",
                                 .show_default = true,
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--cached",
                                 .into = &options.cached,
                                 .help = "Tokens that are in the cache before each prompt",
                                 .show_default = true,
                                 .sign = command_line::Sign::not_negative});
  command_line::add_option(app, {.name = "--total",
                                 .into = &options.total,
                                 .help = "Instead: caches before each prompt what lacks to this",
                                 .sign = command_line::Sign::not_negative,
                                 .excludes = "--cached"});
  command_line::add_option(app, {.name = "--warmups",
                                 .into = &options.warmups,
                                 .help = "Runs of each prompt before those that count",
                                 .show_default = true,
                                 .sign = command_line::Sign::not_negative});
  command_line::add_option(app, {.name = "--ring",
                                 .into = &options.ring,
                                 .help = "What travels round the ring",
                                 .show_default = true,
                                 .among = {"pass_kv", "pass_q", "levels"}});
  command_line::add_option(app, {.name = "--drop",
                                 .into = &options.drop,
                                 .help = "With --ring levels, per cent that level 2 drops",
                                 .show_default = true,
                                 .range = {{0, 95}}});
  command_line::add_option(app, {.name = "--levels",
                                 .into = &options.levels,
                                 .help = "With --ring levels, their number; 0: one and all ranks",
                                 .show_default = true,
                                 .sign = command_line::Sign::not_negative});
  command_line::add_option(app, {.name = "--pipeline",
                                 .into = &options.micro,
                                 .help = "With --ring levels, micro-partitions of a level",
                                 .show_default = true,
                                 .sign = command_line::Sign::positive});
}

int64_t cached_before(const Options& options, int64_t tokens) {
  return options.total > 0 ? options.total - tokens : options.cached;
}

/// Tokens for which to reserve slots, so that a prompt of `tokens` fits on each rank however its
/// chunks are cut.
int64_t slots_of_prompt(const ReplicaSettings& settings, int64_t tokens, int ranks) {
  const int64_t passes = (tokens + settings.batch_tokens - 1) / settings.batch_tokens;
  return tokens + 2 * ranks * passes;
}

ReplicaSettings settings_for(const Options& options, const LoadedModel& model, int threads,
                             int ranks) {
  ReplicaSettings settings = replica_settings(options.model, model, threads, ranks);
  settings.prefill_ring = options.ring == "pass_kv"  ? parallel::AttentionExchange::pass_kv
                          : options.ring == "pass_q" ? parallel::AttentionExchange::pass_q
                                                     : parallel::AttentionExchange::levels;
  if (settings.prefill_ring == parallel::AttentionExchange::levels)
    settings.sparse = {{parallel::Geometry::disjoint, 0.01 * options.drop},
                       options.levels > 0 ? std::optional(options.levels) : std::nullopt,
                       options.micro};
  for (const int64_t tokens : options.tokens) {
    const int64_t cached = cached_before(options, tokens);
    if (cached < 0)
      fail<InputError>("--total {} is less than the {} of --tokens", options.total, tokens);
    settings.kv_tokens =
        std::max(settings.kv_tokens,
                 Replica::slots(settings, ranks, cached, slots_of_prompt(settings, tokens, ranks)));
  }
  return settings;
}

std::vector<int32_t> prompt(const Options& options, const LoadedModel& model, int64_t tokens) {
  return random_tokens(tokens, model.config.vocab, options.model.seed);
}

class Prefill {
 public:
  Prefill(const Session& session, const Options& options, const LoadedModel& model)
      : world_(session.world),
        session_(session),
        options_(options),
        model_(model),
        settings_(settings_for(options, model, session.options.threads, session.world.size())),
        replica_(world_, model, settings_),
        results_(session,
                 fmt::format("{}, weights {}, KV {}, {} tokens a pass, {}, {}",
                             options.model.model.filename().string(), options.model.dtype,
                             name_of(settings_.kv_dtype), settings_.batch_tokens, options.ring,
                             grid(options.model, world_.size())),
                 Json{{"model", options.model.model.filename().string()},
                      {"grid", grid(options.model, world_.size())},
                      {"dtype", options.model.dtype},
                      {"compute", options.model.compute},
                      {"kv_dtype", std::string(name_of(settings_.kv_dtype))},
                      {"batch_tokens", settings_.batch_tokens},
                      {"ring", options.ring},
                      {"drop", options.ring == "levels" ? 0.01 * options.drop : 0},
                      {"levels", options.levels},
                      {"pipeline", options.micro}}) {}

  void run() {
    if (session_.options.check) refuse_check_of_codes(options_.model);
    if (session_.options.check && options_.drop > 0)
      fail<InputError>("--check compares with one rank, which drops nothing: use --drop 0");
    const Floors floors = [&] {
      const resources::ComputePlace place = make_place(settings_, model_, world_);
      results_.on_device(place.device->info());
      return measure_floors(world_, place, options_.model.product_type());
    }();
    if (instances() > 1) rates_ = replica_.measure_rates();
    results_.line(fmt::format(
        "floor of all ranks: matrix product {:.1f} GFLOP/s; the hardware gives {:.1f} by {}",
        floors.flops * 1e-9, floors.peak.start.best * 1e-9, floors.peak.instructions));
    if (rates_)
      results_.line(fmt::format(
          "ring: attention {:.1f} GFLOP/s, {:.1f} MB/s round it, {:.1f} MB/s all to all",
          rates_->flops * 1e-9, rates_->bandwidth * 1e-6, rates_->all_to_all_bandwidth * 1e-6));
    results_.columns({"tokens", "cached", "passes", "s", "min s", "max s", "tok/s", "GFLOP/s",
                      "% of floor", "B/token/layer", "by phantom", "exposed comm %", "rule",
                      "max RSS MiB"});
    for (const int64_t tokens : options_.tokens) {
      measure(tokens, floors);
      if (session_.options.check) check(tokens);
    }
    print_held_out(
        results_, timed_,
        expected_times(model_, settings_, floors, world_.size(), computes_on_gpus()).prefill);
  }

 private:
  bool computes_on_gpus() const { return resources::computes_on_gpus(settings_.job, world_); }
  int instances() const { return world_.size() / (options_.model.sp * options_.model.tp); }

  void measure(int64_t tokens, const Floors& floors) {
    const std::vector<int32_t> ids = prompt(options_, model_, tokens);
    const auto once = [&] { answer(replica_, ids); };
    const auto prepare = [&] { this->prepare(replica_, settings_, tokens, world_.size()); };
    for (int i = 0; i < options_.warmups; ++i) prepare(), once(), replica_.remove(0);
    std::vector<double> seconds;
    Sent sent;
    Shares shares;
    std::vector<report::Stage> stages;
    int64_t passes = 0;
    double cpu_s = 0;
    for (int i = 0; i < session_.options.runs; ++i) {
      prepare();
      const report::Totals totals = replica_.recorder().totals();
      const Sent before = sent_by_all(world_, replica_);
      if (i == 0) stages = replica_.recorder().stages();
      passes = replica_.passes();
      const double cpu_before_s = report::cpu_seconds();
      seconds.push_back(timed_runs(world_, 1, once).front());
      cpu_s += world_.all_reduce_sum(report::cpu_seconds() - cpu_before_s);
      passes = replica_.passes() - passes;
      sent = sent_by_all(world_, replica_) - before;
      const double share_of_run =
          shares_since(world_, totals, replica_.recorder().totals(), seconds.back()).exposed_comm;
      shares.exposed_comm += share_of_run / session_.options.runs;
      replica_.remove(0);
    }

    const Spread spread_s = spread(seconds);
    timed_.push_back({schedule::busiest_prefill(instances(), cached_before(options_, tokens),
                                                tokens, settings_.batch_tokens),
                      spread_s.median});
    const double tokens_read = static_cast<double>(session_.options.runs * tokens);
    const double per_token_and_layer = static_cast<double>(tokens * model_.config.layers);
    const auto rss_bytes = world_.all_reduce_max(report::peak_rss_bytes());
    const double flops = prefill_flops(model_.config, tokens, cached_before(options_, tokens));
    const double share = flops / floors.flops / spread_s.median;
    const auto taken = stage_seconds(stages, replica_.recorder().stages());

    constexpr double mib = 1 << 20;
    results_.row({std::to_string(tokens), std::to_string(cached_before(options_, tokens)),
                  std::to_string(passes), fmt::format("{:.4f}", spread_s.median),
                  fmt::format("{:.4f}", spread_s.min), fmt::format("{:.4f}", spread_s.max),
                  fmt::format("{:.1f}", static_cast<double>(tokens) / spread_s.median),
                  fmt::format("{:.1f}", flops / spread_s.median * 1e-9),
                  fmt::format("{:.1f}", 100 * share),
                  fmt::format("{:.1f}", sent.in_layers() / per_token_and_layer),
                  fmt::format("{:.1f}", sent.expected_in_layers / per_token_and_layer),
                  fmt::format("{:.1f}", 100 * shares.exposed_comm), by_rule(tokens),
                  fmt::format("{:.0f}", static_cast<double>(rss_bytes) / mib)});
    if (options_.model.stages) print_stages(results_, taken);
    results_.write({{"tokens", tokens},
                    {"cached", cached_before(options_, tokens)},
                    {"rule", by_rule(tokens)},
                    {"ring_flops", rates_ ? rates_->flops : 0},
                    {"ring_bandwidth", rates_ ? rates_->bandwidth : 0},
                    {"all_to_all_bandwidth", rates_ ? rates_->all_to_all_bandwidth : 0},
                    {"seconds", to_json(spread_s)},
                    {"tokens_per_s", static_cast<double>(tokens) / spread_s.median},
                    {"cpu_s_per_token", cpu_s / tokens_read},
                    {"flops", flops},
                    {"product_flops", floors.flops},
                    {"peak_flops", floors.peak.start.best},
                    {"peak_instructions", floors.peak.instructions},
                    {"share_of_floor", share},
                    {"sent_bytes_of_layers", sent.in_layers()},
                    {"expected_bytes_of_layers", sent.expected_in_layers},
                    {"layers", model_.config.layers},
                    {"exposed_comm_share", shares.exposed_comm},
                    {"max_rss_bytes", rss_bytes},
                    {"stages_s_of_rank_0", taken}});
    if (session_.options.check) check_together(world_, sent.problem(settings_));
  }

  /// What travels by the rule in the first pass of the prompt, by rates measured now.
  std::string by_rule(int64_t tokens) const {
    if (!rates_) return "";
    const model::ModelConfig& config = model_.config;
    parallel::RingInputs in;
    in.ranks = instances();
    in.shape = {static_cast<double>(config.num_heads), static_cast<double>(config.num_kv_heads),
                element_bytes(settings_.kv_dtype, config.head_dim)};
    in.rates = *rates_;
    in.load.add(std::min(tokens, settings_.batch_tokens), cached_before(options_, tokens));
    return rule_b(in).ring == parallel::AttentionExchange::pass_kv ? "pass_kv" : "pass_q";
  }

  /// Prepares a replica of `ranks` ranks for a prompt.
  void prepare(Replica& replica, const ReplicaSettings& settings, int64_t tokens, int ranks) {
    if (cached_before(options_, tokens) > 0)
      replica.fill(0, cached_before(options_, tokens), slots_of_prompt(settings, tokens, ranks),
                   options_.model.seed);
  }

  Answer answer(Replica& replica, const std::vector<int32_t>& ids) {
    const auto tokens = static_cast<int64_t>(ids.size());
    return cached_before(options_, tokens) > 0 ? replica.extend(0, ids) : replica.prefill(0, ids);
  }

  void check(int64_t tokens) {
    const std::vector<int32_t> ids = prompt(options_, model_, tokens);
    ReplicaSettings settings = settings_;
    settings.logprobs = -1;
    if (cached_before(options_, tokens) > 0) settings.kv_dtype = DType::fp32;
    const auto predicted = [&](comm::Communicator& ring) {
      Replica replica(ring, model_, settings);
      prepare(replica, settings, tokens, ring.size());
      return answer(replica, ids);
    };
    const Answer ours = predicted(world_);
    std::string problem;
    if (world_.rank() == 0) {
      settings.sp = settings.tp = settings.ep = 1;
      settings.sharding = parallel::Sharding::base;
      settings.batch_tokens = (tokens + 1) / 2;
      settings.kv_tokens = Replica::slots(settings, 1, cached_before(options_, tokens),
                                          slots_of_prompt(settings, tokens, 1));
      const auto alone = comm::make_null_communicator();
      const Answer expected = predicted(*alone);
      const auto tolerance = logprob_tolerance(settings.kv_dtype, replica_.operands());
      problem = difference(ours.logprobs, expected.logprobs, tolerance);
      if (!problem.empty())
        problem = fmt::format("log-probabilities after {} tokens: {}", tokens, problem);
    }
    check_together(world_, problem);
    results_.line(fmt::format("    checked: {} tokens give what one rank alone gives", tokens));
  }

  comm::Communicator& world_;
  const Session& session_;
  const Options& options_;
  const LoadedModel& model_;
  ReplicaSettings settings_;
  Replica replica_;
  Results results_;
  std::optional<parallel::RingRates> rates_;  ///< with a ring
  std::vector<TimedWork> timed_;
};

}  // namespace
}  // namespace pecia::bench

int main(int argc, char** argv) {
  using namespace pecia::bench;
  Options options;
  return run_benchmark({"bench_prefill", "Times whole prefills of a model on a ring of ranks",
                        [&](CLI::App& app) { add_options(app, options); },
                        [&](const Session& session) {
                          const auto model = load_model(session.world, options.model.model);
                          Prefill(session, options, *model).run();
                        }},
                       argc, argv);
}
