// SPDX-License-Identifier: Apache-2.0
/// Times prefills of random prompts, on request after a cache of random keys and values. It prints
/// tokens/s, share of the floor (FLOPs / the matrix product's measured FLOP/s), the bytes sent and
/// those of phantom ranks, what should travel by the rule, and how well each time follows from the
/// others. --check compares the log-probabilities after the prompt with the results of one rank
/// alone, which reads the prompt in two passes, with an fp32 cache after random keys and values.

#include <algorithm>

#include "apps/bench/commands.hpp"
#include "apps/bench/support/agreement.hpp"
#include "apps/bench/support/held_out.hpp"
#include "apps/bench/support/model_bench.hpp"
#include "apps/bench/support/pass_totals.hpp"
#include "apps/bench/support/work.hpp"
#include "lib/base/core/fp8_vector.hpp"
#include "lib/base/report/memory.hpp"
#include "lib/engine/schedule/job_limits.hpp"
#include "lib/engine/schedule/team_times.hpp"

namespace pecia::bench {
namespace {

struct PrefillOptions {
  ModelOptions model;
  std::vector<int64_t> tokens = {512, 2048, 8192};
  int64_t cached = 0, total = 0;
  int warmups = 1;
  std::string ring = "pass_kv";
  int drop = 0;  ///< per cent
  int levels = 0, micro = 1;
};

class Prefill : ModelBench {
 public:
  Prefill(const Session& session, const PrefillOptions& options)
      : ModelBench(session, options.model), options_(options) {
    using parallel::AttentionExchange;
    settings_.prefill_ring = options.ring == "pass_kv"  ? AttentionExchange::pass_kv
                             : options.ring == "pass_q" ? AttentionExchange::pass_q
                                                        : AttentionExchange::levels;
    if (settings_.prefill_ring == AttentionExchange::levels)
      settings_.resources.sparse = {
          {parallel::Geometry::disjoint, 0.01 * options.drop},
          options.levels > 0 ? std::optional(options.levels) : std::nullopt,
          parallel::Micros{options.micro}};
    for (const int64_t tokens : options.tokens) {
      if (cached_before(tokens) < 0)
        fail<InputError>("--total {} is less than the {} of --tokens", options.total, tokens);
      settings_.resources.kv_tokens =
          std::max(settings_.resources.kv_tokens, slots_for(settings_, tokens));
    }
  }

  void run() {
    if (session_.options.check && options_.drop > 0)
      fail<InputError>("--check compares with one rank, which drops nothing: use --drop 0");
    const int64_t batch_tokens = settings_.resources.max_batch_tokens;
    begin(fmt::format("{} tokens a pass, {}", batch_tokens, options_.ring),
          {{"batch_tokens", batch_tokens},
           {"ring", options_.ring},
           {"drop", options_.ring == "levels" ? 0.01 * options_.drop : 0},
           {"levels", options_.levels},
           {"pipeline", options_.micro}});
    Replica replica(world_, model_, settings_);
    if (instances() > 1) rates_ = replica.measure_rates();
    if (rates_)
      results_.line(fmt::format(
          "ring: attention {:.1f} GFLOP/s, {:.1f} MB/s round it, {:.1f} MB/s all to all",
          rates_->flops * 1e-9, rates_->bandwidth * 1e-6, rates_->all_to_all_bandwidth * 1e-6));
    results_.columns(
        "tokens|cached|passes|s|min s|max s|tok/s|GFLOP/s|% of floor|B/token/layer|by "
        "phantom|exposed comm %|rule|max RSS MiB");
    for (const int64_t tokens : options_.tokens) {
      measure(replica, tokens);
      if (session_.options.check) check(tokens, replica.operands());
    }
    print_held_out(results_, timed_, expected_times(model_, settings_, floors_).prefill);
  }

 private:
  int64_t cached_before(int64_t tokens) const {
    return options_.total > 0 ? options_.total - tokens : options_.cached;
  }

  /// Tokens for which to reserve slots, so that a prompt of `tokens` fits on each rank however its
  /// chunks are cut.
  static int64_t reserved_for(const ReplicaSettings& settings, int64_t tokens) {
    const int64_t chunk = settings.resources.max_batch_tokens;
    const int64_t ranks = settings.resources.degrees().ranks();
    return tokens + 2 * ranks * ((tokens + chunk - 1) / chunk);
  }

  int64_t slots_for(const ReplicaSettings& settings, int64_t tokens) const {
    return Replica::slots(settings, cached_before(tokens), reserved_for(settings, tokens));
  }

  void measure(Replica& replica, int64_t tokens) {
    const std::vector<int32_t> ids = tokens_of(tokens);
    const int64_t cached = cached_before(tokens);
    const int runs = session_.options.runs;
    const auto once = [&] { answer(replica, ids); };
    for (int i = 0; i < options_.warmups; ++i)
      prepare(replica, settings_, tokens), once(), replica.remove(0);
    std::vector<double> seconds;
    Sent sent;
    double exposed_comm = 0, cpu_s = 0;
    std::vector<report::Stage> stages;
    int64_t passes = 0;
    for (int i = 0; i < runs; ++i) {
      prepare(replica, settings_, tokens);
      const report::Totals totals = replica.recorder().totals();
      const Sent before = sent_by_all(world_, replica);
      if (i == 0) stages = replica.recorder().stages();
      passes = replica.passes();
      const double cpu_before_s = report::cpu_seconds();
      seconds.push_back(timed_runs(world_, 1, once).front());
      cpu_s += world_.all_reduce_sum(report::cpu_seconds() - cpu_before_s);
      passes = replica.passes() - passes;
      sent = sent_by_all(world_, replica) - before;
      exposed_comm +=
          shares_since(world_, totals, replica.recorder().totals(), seconds.back()).exposed_comm /
          runs;
      replica.remove(0);
    }

    const Spread spread_s = spread(seconds);
    timed_.push_back({schedule::busiest_prefill(instances(), cached, tokens,
                                                settings_.resources.max_batch_tokens),
                      spread_s.median});
    const double tokens_per_s = static_cast<double>(tokens) / spread_s.median;
    const double per_token_and_layer = static_cast<double>(tokens * config_.layers);
    const auto rss_bytes = world_.all_reduce_max(report::peak_rss_bytes());
    const double flops = prefill_flops(config_, tokens, cached);
    const double share = flops / floors_.flops / spread_s.median;
    const auto taken = stage_seconds(stages, replica.recorder().stages());

    results_.row(
        "{}|{}|{}|{:.4f}|{:.4f}|{:.4f}|{:.1f}|{:.1f}|{:.1f}|{:.1f}|{:.1f}|{:.1f}|{}|{:.0f}", tokens,
        cached, passes, spread_s.median, spread_s.min, spread_s.max, tokens_per_s,
        flops / spread_s.median * 1e-9, 100 * share, sent.in_layers() / per_token_and_layer,
        sent.expected_in_layers / per_token_and_layer, 100 * exposed_comm, by_rule(tokens),
        static_cast<double>(rss_bytes) / (1 << 20));
    if (options_.model.stages) print_stages(results_, taken);
    results_.write({{"tokens", tokens},
                    {"cached", cached},
                    {"rule", by_rule(tokens)},
                    {"ring_flops", rates_ ? rates_->flops : 0},
                    {"ring_bandwidth", rates_ ? rates_->bandwidth : 0},
                    {"all_to_all_bandwidth", rates_ ? rates_->all_to_all_bandwidth : 0},
                    {"seconds", to_json(spread_s)},
                    {"tokens_per_s", tokens_per_s},
                    {"cpu_s_per_token", cpu_s / static_cast<double>(runs * tokens)},
                    {"flops", flops},
                    {"product_flops", floors_.flops},
                    {"peak_flops", floors_.peak.start.best},
                    {"peak_instructions", floors_.peak.instructions},
                    {"share_of_floor", share},
                    {"sent_bytes_of_layers", sent.in_layers()},
                    {"expected_bytes_of_layers", sent.expected_in_layers},
                    {"layers", config_.layers},
                    {"exposed_comm_share", exposed_comm},
                    {"max_rss_bytes", rss_bytes},
                    {"stages_s_of_rank_0", taken}});
    if (session_.options.check) check_together(world_, sent.problem(settings_));
  }

  /// What travels by the rule in the first pass of the prompt, by rates measured now.
  std::string by_rule(int64_t tokens) const {
    if (!rates_) return "";
    parallel::RingInputs in;
    in.ranks = instances();
    in.shape = schedule::ring_shape(config_, settings_.resources);
    in.rates = *rates_;
    in.load.add(std::min(tokens, settings_.resources.max_batch_tokens), cached_before(tokens));
    return rule_b(in).ring == parallel::AttentionExchange::pass_kv ? "pass_kv" : "pass_q";
  }

  /// Fills the cache before a prompt.
  void prepare(Replica& replica, const ReplicaSettings& settings, int64_t tokens) const {
    if (cached_before(tokens) > 0)
      replica.fill(0, cached_before(tokens), reserved_for(settings, tokens), options_.model.seed);
  }

  Answer answer(Replica& replica, const std::vector<int32_t>& ids) const {
    return cached_before(std::ssize(ids)) > 0 ? replica.extend(0, ids) : replica.prefill(0, ids);
  }

  /// The one rank reads the prompt in two passes.
  void check(int64_t tokens, DType operands) {
    ReplicaSettings settings = settings_;
    if (cached_before(tokens) > 0) settings.resources.kv_dtype = DType::fp32;
    const Feed feed = [&](comm::Communicator& ring, const LoadedModel& model, ReplicaSettings of) {
      if (&ring != &world_) {
        of.resources.max_batch_tokens = (tokens + 1) / 2;
        of.resources.kv_tokens = slots_for(of, tokens);
      }
      Replica replica(ring, model, of);
      prepare(replica, of, tokens);
      return answer(replica, tokens_of(tokens)).logprobs;
    };
    check_against_one_rank(settings, feed, logprob_tolerance(settings.resources.kv_dtype, operands),
                           fmt::format("after {} tokens", tokens));
  }

  const PrefillOptions& options_;
  std::optional<parallel::RingRates> rates_;  ///< with a ring
  std::vector<TimedWork> timed_;
};

}  // namespace

void add_prefill(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<PrefillOptions>();
  Command command(app, chosen, "prefill", "Times whole prefills of a model on a ring of ranks",
                  [options](const Session& session) { Prefill(session, *options).run(); });
  add_model_options(command, options->model);
  command.positive("--tokens", &options->tokens, "Lengths of the prompts");
  command.not_negative("--cached", &options->cached,
                       "Tokens that are in the cache before each prompt");
  command.add({.name = "--total",
               .into = &options->total,
               .help = "Instead: caches before each prompt what lacks to this",
               .sign = command_line::Sign::not_negative,
               .excludes = "--cached"});
  command.not_negative("--warmups", &options->warmups,
                       "Runs of each prompt before those that count");
  command.word("--ring", &options->ring, "What travels round the ring",
               {"pass_kv", "pass_q", "levels"});
  command.add({.name = "--drop",
               .into = &options->drop,
               .help = "With --ring levels, per cent that level 2 drops",
               .show_default = true,
               .range = {{0, 95}}});
  command.not_negative("--levels", &options->levels,
                       "With --ring levels, their number; 0: one and all ranks");
  command.positive("--pipeline", &options->micro,
                   "With --ring levels, micro-partitions of a level");
}

}  // namespace pecia::bench
