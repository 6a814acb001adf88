/// Whole prefills of random prompts by the ring: tokens/s, share of the floor (FLOPs / the matrix
/// product's measured FLOP/s), and what travels against the formula. --check compares the
/// log-probabilities after the prompt with those of one rank alone that is fed the prompt in two
/// passes.

#include <algorithm>

#include "apps/bench_support/agreement.hpp"
#include "apps/bench_support/floors.hpp"
#include "apps/bench_support/model_options.hpp"
#include "apps/bench_support/work.hpp"
#include "lib/report/format.hpp"
#include "lib/report/memory.hpp"

namespace pecia::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  ModelOptions model;
  std::vector<int64_t> tokens = {512, 2048, 8192};
  std::string ring = "pass_kv";
};

void add_options(CLI::App& app, Options& options) {
  add_model_options(app, options.model);
  app.add_option("--tokens", options.tokens, "Lengths of the prompts")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--ring", options.ring, "What travels round the ring")
      ->check(CLI::IsMember({"pass_kv", "pass_q"}))
      ->capture_default_str();
}

ReplicaSettings settings_for(const Options& options, const LoadedModel& model, int threads,
                             int ranks) {
  ReplicaSettings settings = replica_settings(options.model, model, threads, ranks);
  settings.prefill_ring =
      options.ring == "pass_kv" ? parallel::Ring::pass_kv : parallel::Ring::pass_q;
  for (const int64_t tokens : options.tokens)
    settings.kv_tokens = std::max(settings.kv_tokens, Replica::slots(settings, ranks, tokens, 0));
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
        backend_(kernels::make_cpu_backend()),
        replica_(world_, model, *backend_, settings_),
        results_(
            session,
            fmt::format("{}, KV {}, {} tokens a pass, {}, {}",
                        options.model.model.filename().string(), name_of(settings_.kv_dtype),
                        settings_.batch_tokens, options.ring, grid(options.model, world_.size())),
            Json{{"model", options.model.model.filename().string()},
                 {"grid", grid(options.model, world_.size())},
                 {"kv_dtype", std::string(name_of(settings_.kv_dtype))},
                 {"batch_tokens", settings_.batch_tokens},
                 {"ring", options.ring}}) {}

  void run() {
    device::Stream stream(session_.options.threads);
    const Floors floors = measure_floors(world_, *backend_, stream);
    results_.line(
        fmt::format("floor of all ranks: fp32 matrix product {:.1f} GFLOP/s", floors.flops * 1e-9));
    results_.columns({"tokens", "passes", "s", "min s", "max s", "tok/s", "GFLOP/s", "% of floor",
                      "sent MiB/rank", "by formula", "exposed comm %", "max RSS MiB"});
    for (const int64_t tokens : options_.tokens) {
      measure(tokens, floors);
      if (session_.options.check) check(tokens);
    }
  }

 private:
  void measure(int64_t tokens, const Floors& floors) {
    const std::vector<int32_t> ids = prompt(options_, model_, tokens);
    const auto once = [&] {
      replica_.prefill(next_sequence_, ids);
      replica_.remove(next_sequence_++);
    };
    once();
    const report::Totals totals = replica_.recorder().totals();
    const std::vector<report::Stage> stages = replica_.recorder().stages();
    const int64_t sent = replica_.traffic().bytes, expected = replica_.expected_bytes();
    const int64_t passes = replica_.passes();
    const std::vector<double> seconds = timed_runs(world_, session_.options.runs, once);

    const Spread spread_s = spread(seconds);
    double all_s = 0;
    for (const double one : seconds) all_s += one;
    const Shares shares = shares_since(world_, totals, replica_.recorder().totals(), all_s);
    const int64_t sent_bytes = (replica_.traffic().bytes - sent) / session_.options.runs;
    const int64_t expected_bytes = (replica_.expected_bytes() - expected) / session_.options.runs;
    const auto rss_bytes = world_.all_reduce_max(report::peak_rss_bytes());
    const double flops = prefill_flops(model_.config, tokens);
    const double share = flops / floors.flops / spread_s.median;
    const auto taken = stage_seconds(stages, replica_.recorder().stages());

    constexpr double mib = 1 << 20;
    results_.row({std::to_string(tokens),
                  std::to_string((replica_.passes() - passes) / session_.options.runs),
                  fmt::format("{:.4f}", spread_s.median), fmt::format("{:.4f}", spread_s.min),
                  fmt::format("{:.4f}", spread_s.max),
                  fmt::format("{:.1f}", static_cast<double>(tokens) / spread_s.median),
                  fmt::format("{:.1f}", flops / spread_s.median * 1e-9),
                  fmt::format("{:.1f}", 100 * share),
                  fmt::format("{:.2f}", static_cast<double>(sent_bytes) / mib),
                  fmt::format("{:.2f}", static_cast<double>(expected_bytes) / mib),
                  fmt::format("{:.1f}", 100 * shares.exposed_comm),
                  fmt::format("{:.0f}", static_cast<double>(rss_bytes) / mib)});
    if (options_.model.stages) print_stages(results_, taken);
    results_.write({{"tokens", tokens},
                    {"seconds", to_json(spread_s)},
                    {"tokens_per_s", static_cast<double>(tokens) / spread_s.median},
                    {"flops", flops},
                    {"peak_flops", floors.flops},
                    {"share_of_floor", share},
                    {"sent_bytes_of_rank_0", sent_bytes},
                    {"expected_bytes_of_rank_0", expected_bytes},
                    {"exposed_comm_share", shares.exposed_comm},
                    {"max_rss_bytes", rss_bytes},
                    {"stages_s_of_rank_0", taken}});
    if (session_.options.check)
      check_together(world_,
                     sent_bytes == expected_bytes || options_.model.tp > 1  // logits travel too
                         ? ""
                         : fmt::format("{} bytes sent, {} by formula", sent_bytes, expected_bytes));
  }

  void check(int64_t tokens) {
    const std::vector<int32_t> ids = prompt(options_, model_, tokens);
    ReplicaSettings settings = settings_;
    settings.logprobs = -1;
    const Answer ours = Replica(world_, model_, *backend_, settings).prefill(0, ids);
    std::string problem;
    if (world_.rank() == 0) {
      settings.sp = settings.tp = 1;
      settings.sharding = parallel::Sharding::base;
      settings.batch_tokens = (tokens + 1) / 2;
      settings.kv_tokens = Replica::slots(settings, 1, tokens, 0);
      const auto alone = comm::make_null_communicator();
      const Answer expected = Replica(*alone, model_, *backend_, settings).prefill(0, ids);
      const auto tolerance = logprob_tolerance(settings_.kv_dtype);
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
  std::unique_ptr<kernels::Backend> backend_;
  Replica replica_;
  Results results_;
  int64_t next_sequence_ = 0;
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
