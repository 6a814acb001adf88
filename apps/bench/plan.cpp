// SPDX-License-Identifier: Apache-2.0
/// Times the host's work for a decode step on a GPU, without the GPU: from the tokens of the step
/// before to the arguments of every layer's attention, on one core and one rank. It counts
///
///   plan     Scheduler::commit of the step before, Scheduler::next, and the plan's bytes
///   pass     Attention::begin_pass: the rows of each rank, their slots, runs of keys, FLOPs
///   first    the first layer's calls: work divided among the GPU's blocks, and written with rows
///            and runs into the block of memory that is sent
///   others   the calls of all other layers, which find it there
///
/// It does not count tables of rope, launches, sampling and messages of ranks. --check verifies that
/// a step reads every key of every sequence once, and that all layers share the first one's plan.

#include <algorithm>
#include <set>

#include "apps/bench/commands.hpp"
#include "apps/bench/support/agreement.hpp"
#include "apps/bench/support/results.hpp"
#include "kernels/api/validate.hpp"
#include "kernels/cuda/attention/attention_calls.hpp"
#include "kernels/phantom/idle.hpp"
#include "lib/engine/schedule/scheduler.hpp"
#include "lib/model/attention/attention.hpp"

namespace pecia::bench {
namespace {

struct PlanOptions {
  std::vector<int64_t> contexts = {1024, 8192, 65536};
  int64_t batch = 64, layers = 32, steps = 40;
};

// The heads are those of a model of 8B, and the tiles those of the kernels on an H100
// (kernels/cuda/attention/attention.cu). A head has few elements, so that caches of any length fit the
// address space; none is read or written.
constexpr int64_t num_heads = 32, num_kv_heads = 8, head_dim = 16;
constexpr kernels::cuda::PlanLimits tile_limits = {
    .wide_rows = 64, .narrow_rows = 16, .blocks_wanted = 2 * 132};

/// Plans attention as the CUDA backend does, and computes nothing.
class PlanningBackend : public kernels::IdleBackend {
 public:
  explicit PlanningBackend(device::Device& device) : staging_(device), calls_(staging_) {}

  void attention(const kernels::AttentionArgs& args, device::Stream& stream) override {
    kernels::validate(args);
    const auto planned = calls_.plan(args, tile_limits, true, stream);
    room_ = planned->room;
    if (seen_) seen_(args, *planned);
  }
  void kv_store(const kernels::KvStoreArgs& args, device::Stream& stream) override {
    staging_.send_array(args.slots, stream);
  }
  /// The room that the last call took.
  const kernels::cuda::PlanRoom& room() const { return room_; }

  using Seen =
      std::function<void(const kernels::AttentionArgs&, const kernels::cuda::PlannedAttention&)>;
  /// Calls `seen` for every call of attention from now on.
  void show(Seen seen) { seen_ = std::move(seen); }

 private:
  void begin_step(device::Stream&) override {
    calls_.begin_step();
    staging_.begin_step();
  }
  void end_step(device::Stream& stream) override { staging_.end_step(stream); }
  void drop_step(device::Stream&) override { staging_.drop_step(); }

  kernels::cuda::Staging staging_;
  kernels::cuda::AttentionCalls calls_;
  kernels::cuda::PlanRoom room_;
  Seen seen_;
};

/// Microseconds of a step's parts.
struct StepTimes {
  std::vector<double> plan, pass, first, others, all;
};

schedule::SchedulerLimits limits_of_batch(const PlanOptions& options, int64_t tokens) {
  schedule::SchedulerLimits of_batch;
  of_batch.kv_tokens = of_batch.max_positions = of_batch.max_batch_tokens = tokens;
  of_batch.max_sequences = options.batch;
  of_batch.vocab = 1;
  return of_batch;
}

schedule::Outcome outcome_of(const schedule::Plan& plan) {
  schedule::Outcome outcome;
  for (size_t item = 0; item < plan.items.size(); ++item) {
    outcome.sampled.which.push_back(static_cast<int32_t>(item));
    outcome.sampled.tokens.push_back(0);
    outcome.sampled.logprobs.push_back(0);
  }
  return outcome;
}

class PlannedBatch {
 public:
  PlannedBatch(const PlanOptions& options, int64_t context, int64_t steps)
      : options_(options),
        tokens_(options.batch * (context + options.batch + steps + 1)),
        scheduler_(limits_of_batch(options, tokens_)),
        cache_({1, num_kv_heads, head_dim, DType::bf16}, tokens_, *device_),
        attention_(groups_, {num_heads, num_kv_heads}, {0},
                   {*device_, *stream_, backend_, recorder_}, cache_) {
    for (int64_t i = 0; i < options.batch; ++i) {  // lengths differ
      batch::Turn turn;
      turn.row = i;
      turn.tokens.assign(static_cast<size_t>(context + i), 0);
      turn.max_new_tokens = static_cast<int32_t>(steps) + 1;
      scheduler_.add({.turns = {turn}}, 0);
    }
    next_plan();
    for (const schedule::NewSequence& added : plan_.added)
      attention_.ledger().set_state(added.sequence, added.state);
    attention_.begin_pass(plan_.passes(), plan_.number);
    outcome_ = outcome_of(plan_);
  }

  void step(StepTimes& times) {
    Stopwatch watch, whole;
    const auto us = [&] { return 1e6 * std::exchange(watch, Stopwatch()).seconds(); };
    scheduler_.commit(plan_, {outcome_}, 0);
    next_plan();
    const std::vector<std::byte> bytes = to_bytes(plan_);
    times.plan.push_back(us());
    attention_.begin_pass(plan_.passes(), plan_.number);
    times.pass.push_back(us());
    kernels::Step step(backend_, *stream_);
    layer();
    times.first.push_back(us());
    for (int64_t i = 1; i < options_.layers; ++i) layer();
    step.end();
    times.others.push_back(us());
    times.all.push_back(1e6 * whole.seconds());
    outcome_ = outcome_of(plan_);
  }

  /// "" when a further step reads every key once and is planned once.
  std::string problem_of_a_step() {
    int64_t expected = 0, calls = 0;
    for (int64_t i = 0; i < options_.batch; ++i)
      expected += attention_.ledger().map().length(i) + 1;
    std::set<const kernels::cuda::PlannedAttention*> plans;
    std::string problem;
    backend_.show(
        [&](const kernels::AttentionArgs& args, const kernels::cuda::PlannedAttention& planned) {
          int64_t keys = 0;
          for (const kernels::KeyRun& run : args.runs) keys += run.num_keys;
          if (keys != expected)
            problem = fmt::format("layer {} reads {} keys of {}", calls, keys, expected);
          plans.insert(&planned);
          ++calls;
        });
    StepTimes times;
    step(times);
    backend_.show({});
    if (problem.empty() && calls != options_.layers)
      problem = fmt::format("{} calls of attention for {} layers", calls, options_.layers);
    if (problem.empty() && plans.size() != 1)
      problem = fmt::format("{} plans in a step", plans.size());
    return problem;
  }

  const kernels::cuda::PlanRoom& room() const { return backend_.room(); }

 private:
  /// The next plan, which has a row of every sequence's answer, or all prompts.
  void next_plan() {
    std::optional<schedule::Plan> plan = scheduler_.next(0);
    PECIA_CHECK(plan && std::ssize(plan->items) == options_.batch, "a step without {} sequences",
                options_.batch);
    plan_ = std::move(*plan);
  }
  void layer() {
    const TensorView q(static_cast<void*>(rows_.data()), DType::fp32,
                       {options_.batch, num_heads, head_dim});
    const TensorView kv(static_cast<void*>(rows_.data()), DType::fp32,
                        {options_.batch, num_kv_heads, head_dim});
    attention_.start_keys(kv, kv);
    attention_.run(0, q, q);
  }

  const PlanOptions& options_;
  int64_t tokens_;  ///< slots of the cache
  schedule::Scheduler scheduler_;
  schedule::Plan plan_;        ///< of the last pass
  schedule::Outcome outcome_;  ///< its outcome
  std::unique_ptr<device::Device> device_ = device::make_host_device(1);
  std::unique_ptr<device::Stream> stream_ = device_->make_stream();
  attention::ReplicaGroups groups_ =
      attention::make_replica_groups(*comm::make_null_communicator(), 1, 1);
  PlanningBackend backend_{*device_};
  report::Recorder recorder_;
  attention::KvCache cache_;
  attention::Attention attention_;
  std::vector<float> rows_ = std::vector<float>(options_.batch * num_heads * head_dim);
};

void run_plan(const Session& session, const PlanOptions& options) {
  session.require_one_rank("it measures one rank's host work");
  Results results(session,
                  fmt::format("host work of a decode step, {} sequences, {} layers", options.batch,
                              options.layers),
                  {{"batch", options.batch}, {"layers", options.layers}});
  results.columns(
      " context|us/step|min us|plan us|pass us|first layer us|other layers us|  runs| tiles");
  const int64_t timed_steps = session.options.runs * options.steps;
  for (const int64_t context : options.contexts) {
    // One more step for the check.
    PlannedBatch batch(options, context, options.steps + timed_steps + 1);
    StepTimes warm, times;
    for (int64_t step = 0; step < options.steps; ++step) batch.step(warm);
    for (int64_t step = 0; step < timed_steps; ++step) batch.step(times);
    const auto median = [](const std::vector<double>& us) { return spread(us).median; };
    const kernels::cuda::PlanRoom& room = batch.room();
    const int64_t tiles = room.wide.query_tiles + room.narrow.query_tiles;
    results.row("{}|{:.1f}|{:.1f}|{:.1f}|{:.1f}|{:.1f}|{:.1f}|{}|{}", context, median(times.all),
                spread(times.all).min, median(times.plan), median(times.pass), median(times.first),
                median(times.others), room.runs, tiles);
    results.write({{"context", context},
                   {"step_us", to_json(spread(times.all))},
                   {"plan_us", to_json(spread(times.plan))},
                   {"pass_us", to_json(spread(times.pass))},
                   {"first_layer_us", to_json(spread(times.first))},
                   {"other_layers_us", to_json(spread(times.others))},
                   {"room_for_runs", room.runs},
                   {"room_for_tiles", tiles}});
    if (session.options.check) check_together(session.world, batch.problem_of_a_step());
  }
  if (session.options.check)
    results.line("checked: a step reads every key once, and one plan serves all layers");
}

}  // namespace

void add_plan(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<PlanOptions>();
  Command command(app, chosen, "plan", "Times the host's work between two decode steps on a GPU",
                  [options](const Session& session) { run_plan(session, *options); });
  command.positive("--contexts", &options->contexts, "Tokens in each sequence's cache");
  command.positive("--batch", &options->batch, "Sequences");
  command.positive("--layers", &options->layers, "Layers of the model");
  command.positive("--steps", &options->steps, "Decode steps of a run; the first run is not timed");
}

}  // namespace pecia::bench
