// SPDX-License-Identifier: Apache-2.0
/// Times passes of batch.policy: chunked, which have the decode rows of some sequences and the
/// prompts of others, beside a pass of the same decode rows and one of the same prompts. The three
/// passes take turns, and a ratio is the median of the rounds' ratios. The floor of a mixed pass is
/// the longer of bytes / (measured read bandwidth) and FLOPs / (measured FLOP/s). --check compares
/// the log-probabilities of all its rows with the results of one rank alone, which decodes the
/// sequences and reads the prompts one by one, with an fp32 cache.

#include <algorithm>
#include <numeric>

#include "apps/bench_support/agreement.hpp"
#include "apps/bench_support/floors.hpp"
#include "apps/bench_support/model_options.hpp"
#include "apps/bench_support/work.hpp"
#include "apps/command_line/options.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr double check_tolerance = 1e-2;  // as that of bench_decode, for the same reason
constexpr DType check_kv_dtype = DType::fp32;

struct Options {
  ModelOptions model;
  std::vector<int64_t> contexts = {512}, batches = {8, 32}, prompts = {1};
  std::vector<int64_t> prompt_tokens = {256, 512, 2048};
  std::string ring = "pass_kv";
};

void add_options(CLI::App& app, Options& options) {
  add_model_options(app, options.model);
  command_line::add_option(app, {.name = "--contexts",
                                 .into = &options.contexts,
                                 .help = "Tokens in the cache of each sequence that is decoded",
                                 .show_default = true,
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--batches",
                                 .into = &options.batches,
                                 .help = "Numbers of sequences that are decoded",
                                 .show_default = true,
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--prompts",
                                 .into = &options.prompts,
                                 .help = "Numbers of prompts beside them, all in one pass",
                                 .show_default = true,
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--prompt-tokens",
                                 .into = &options.prompt_tokens,
                                 .help = "Tokens of each prompt",
                                 .show_default = true,
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--ring",
                                 .into = &options.ring,
                                 .help = "What travels between context-parallel ranks in passes "
                                         "with prompts; pass_q in the others",
                                 .show_default = true,
                                 .among = {"pass_kv", "pass_q"}});
}

struct Case {
  int64_t context, batch, prompts, prompt_tokens;

  int64_t rows() const { return batch + prompts * prompt_tokens; }
};

class Mixed {
 public:
  Mixed(const Session& session, const Options& options, const LoadedModel& model)
      : world_(session.world),
        session_(session),
        options_(options),
        model_(model),
        settings_(replica_settings(options.model, model, session.options.threads, world_.size())),
        results_(
            session,
            fmt::format("{}, weights {}, KV {}, {}, {}", options.model.model.filename().string(),
                        options.model.dtype, name_of(settings_.kv_dtype), options.ring,
                        grid(options.model, world_.size())),
            Json{{"model", options.model.model.filename().string()},
                 {"grid", grid(options.model, world_.size())},
                 {"ring", options.ring},
                 {"dtype", options.model.dtype},
                 {"compute", options.model.compute},
                 {"kv_dtype", std::string(name_of(settings_.kv_dtype))}}) {
    if (options.ring == "pass_q") settings_.prefill_ring = parallel::AttentionExchange::pass_q;
  }

  void run() {
    if (session_.options.check) refuse_check_of_codes(options_.model);
    const Floors floors = [&] {
      const resources::ComputePlace place = make_place(settings_, model_, world_);
      results_.on_device(place.device->info());
      return measure_floors(world_, place, options_.model.product_type());
    }();
    results_.line(
        fmt::format("floor of all ranks: reads {:.1f} GB/s, matrix product {:.1f} GFLOP/s",
                    floors.read_bandwidth * 1e-9, floors.flops * 1e-9));
    results_.columns({"context", "batch", "prompts", "tokens", "step ms", "prompts ms", "mixed ms",
                      "min ms", "max ms", "mixed / apart", "GFLOP", "MB", "bound by",
                      "% of floor"});
    for (const int64_t context : options_.contexts)
      for (const int64_t batch : options_.batches)
        for (const int64_t prompts : options_.prompts)
          for (const int64_t tokens : options_.prompt_tokens) {
            const Case one{context, batch, prompts, tokens};
            measure(one, floors);
            if (session_.options.check) check(one);
          }
  }

 private:
  /// Each round has two steps, and one round warms up.
  int64_t all_steps() const { return 2 * int64_t{session_.options.runs + 1}; }

  /// The settings for a replica that has room for the case, and for its prompts in one pass.
  ReplicaSettings settings_for(const Case& one, int ranks, int64_t steps) const {
    ReplicaSettings settings = settings_;
    settings.batch_tokens = std::max(settings.batch_tokens, one.prompts * one.prompt_tokens);
    if (ranks == 1) {
      settings.sp = settings.tp = settings.ep = 1;
      settings.sharding = parallel::Sharding::base;
    }
    settings.kv_tokens = one.batch * Replica::slots(settings, ranks, one.context, steps) +
                         one.prompts * Replica::slots(settings, ranks, one.prompt_tokens, 0);
    return settings;
  }

  std::vector<parallel::SequenceId> filled(Replica& replica, const Case& one, int64_t steps) const {
    std::vector<parallel::SequenceId> sequences(one.batch);
    std::iota(sequences.begin(), sequences.end(), 0);
    for (const parallel::SequenceId sequence : sequences)
      replica.fill(sequence, one.context, steps, options_.model.seed);
    return sequences;
  }

  std::vector<Replica::Prompt> prompts_of(const Case& one) const {
    std::vector<Replica::Prompt> prompts;
    for (int64_t i = 0; i < one.prompts; ++i) {
      const uint64_t seed = options_.model.seed + 1 + static_cast<uint64_t>(i);
      prompts.push_back(
          {one.batch + i, random_tokens(one.prompt_tokens, model_.config.vocab, seed)});
    }
    return prompts;
  }

  void measure(const Case& one, const Floors& floors) {
    const ReplicaSettings settings = settings_for(one, world_.size(), all_steps());
    Replica replica(world_, model_, settings);
    const auto sequences = filled(replica, one, all_steps());
    const std::vector<Replica::Prompt> prompts = prompts_of(one);
    const auto forget = [&] {
      for (const Replica::Prompt& prompt : prompts) replica.remove(prompt.sequence);
      replica.release_removed();
    };
    std::vector<int32_t> tokens =
        random_tokens(one.batch, model_.config.vocab, options_.model.seed);
    std::vector<double> step_s, prompt_s, mixed_s, ratios;
    for (int round = -1; round < session_.options.runs; ++round) {
      const double step = seconds([&] { tokens = replica.decode(sequences, tokens).tokens; });
      const double alone = seconds([&] { replica.step_and_prefill({}, {}, prompts); });
      forget();
      const double together =
          seconds([&] { tokens = replica.step_and_prefill(sequences, tokens, prompts).tokens; });
      forget();
      if (!tokens.empty()) tokens.resize(one.batch);  // without those after the prompts
      if (round < 0) continue;
      step_s.push_back(step), prompt_s.push_back(alone), mixed_s.push_back(together);
      ratios.push_back(together / (step + alone));
    }
    report(one, settings.kv_dtype, floors, spread(step_s), spread(prompt_s), spread(mixed_s),
           spread(ratios));
    if (session_.options.check)
      check_together(world_, sent_by_all(world_, replica).problem(settings));
  }

  double seconds(const std::function<void()>& pass) const {
    return timed_runs(world_, 1, pass).front();
  }

  /// Bytes that a mixed pass has to read: the matrices that its rows touch, and keys and values.
  double bytes_of(const Case& one, DType kv_dtype) const {
    const model::Quantize quantize = resources::quantize_of(options_.model.job());
    const auto bytes = [&](int64_t rows, int64_t cached) {
      return decode_bytes(model_.config, model_.weights, rows, cached, kv_dtype, world_.size(),
                          quantize);
    };
    const int64_t cached = one.context + all_steps() / 2;  // of a sequence, at mid-run
    return bytes(one.rows(), 0) + bytes(one.batch, cached) - bytes(one.batch, 0);
  }

  void report(const Case& one, DType kv_dtype, const Floors& floors, const Spread& step_s,
              const Spread& prompt_s, const Spread& mixed_s, const Spread& ratio) const {
    const double bytes = bytes_of(one, kv_dtype);
    const double flops =
        static_cast<double>(one.prompts) * prefill_flops(model_.config, one.prompt_tokens, 0) +
        decode_flops(model_.config, one.batch, one.context + all_steps() / 2);
    const double bytes_s = bytes / floors.read_bandwidth, flops_s = flops / floors.flops;
    const double share = std::max(bytes_s, flops_s) / mixed_s.median;
    const char* bound = bytes_s >= flops_s ? "memory" : "compute";
    const auto ms = [](double seconds) { return fmt::format("{:.3f}", 1e3 * seconds); };
    results_.row({std::to_string(one.context), std::to_string(one.batch),
                  std::to_string(one.prompts), std::to_string(one.prompt_tokens), ms(step_s.median),
                  ms(prompt_s.median), ms(mixed_s.median), ms(mixed_s.min), ms(mixed_s.max),
                  fmt::format("{:.3f}", ratio.median), fmt::format("{:.1f}", 1e-9 * flops),
                  fmt::format("{:.1f}", 1e-6 * bytes), bound, fmt::format("{:.1f}", 100 * share)});
    results_.write({{"context", one.context},
                    {"batch", one.batch},
                    {"prompts", one.prompts},
                    {"prompt_tokens", one.prompt_tokens},
                    {"step_seconds", to_json(step_s)},
                    {"prompts_seconds", to_json(prompt_s)},
                    {"mixed_seconds", to_json(mixed_s)},
                    {"mixed_over_apart", to_json(ratio)},
                    {"bytes", bytes},
                    {"flops", flops},
                    {"read_bandwidth", floors.read_bandwidth},
                    {"product_flops", floors.flops},
                    {"bound_by", bound},
                    {"share_of_floor", share}});
  }

  void check(const Case& one) const {
    const std::vector<Replica::Prompt> prompts = prompts_of(one);
    const auto tokens = random_tokens(one.batch, model_.config.vocab, options_.model.seed);
    const auto settings_on = [&](int ranks) {
      ReplicaSettings settings = settings_for(one, ranks, 1);
      settings.logprobs = -1;
      settings.kv_dtype = check_kv_dtype;
      return settings;
    };
    Replica replica(world_, model_, settings_on(world_.size()));
    const auto sequences = filled(replica, one, 1);
    const Answer ours = replica.step_and_prefill(sequences, tokens, prompts);
    std::string problem;
    if (world_.rank() == 0) {
      const auto alone = comm::make_null_communicator();
      Replica apart(*alone, model_, settings_on(1));
      filled(apart, one, 1);
      std::vector<float> expected;
      const auto keep = [&](const Answer& answer) {
        expected.insert(expected.end(), answer.logprobs.begin(), answer.logprobs.end());
      };
      for (int64_t i = 0; i < one.batch; ++i)
        keep(apart.decode(std::span(sequences).subspan(i, 1), std::span(tokens).subspan(i, 1)));
      for (const Replica::Prompt& prompt : prompts)
        keep(apart.prefill(prompt.sequence, prompt.tokens));
      problem = difference(ours.logprobs, expected, check_tolerance);
      if (!problem.empty())
        problem = fmt::format(
            "log-probabilities of {} sequences after {} tokens and {} prompts of {}: {}", one.batch,
            one.context, one.prompts, one.prompt_tokens, problem);
    }
    check_together(world_, problem);
    results_.line("    checked: the pass gives what one rank gives in passes of one sequence");
  }

  comm::Communicator& world_;
  const Session& session_;
  const Options& options_;
  const LoadedModel& model_;
  ReplicaSettings settings_;
  Results results_;
};

}  // namespace
}  // namespace pecia::bench

int main(int argc, char** argv) {
  using namespace pecia::bench;
  Options options;
  return run_benchmark({"bench_mixed", "Times passes of a model with decode rows and prompts",
                        [&](CLI::App& app) { add_options(app, options); },
                        [&](const Session& session) {
                          const auto model = load_model(session.world, options.model.model);
                          Mixed(session, options, *model).run();
                        }},
                       argc, argv);
}
