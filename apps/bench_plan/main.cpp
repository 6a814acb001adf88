// SPDX-License-Identifier: Apache-2.0
/// Times the host's work for attention in a decode step on a GPU, without the GPU: from the plan's
/// sequences to the arguments of every layer's kernels, on one core and one rank. It counts
///
///   pass     RingAttention::begin_pass: the rows of each rank, their slots, runs of keys, FLOPs
///   first    the first layer's calls: work divided among the GPU's blocks, and written with rows
///            and runs into the block of memory that is sent
///   others   the calls of all other layers, which find it there
///
/// It does not count scheduling, tables of rope, launches and sampling.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "kernels/api/validate.hpp"
#include "kernels/cuda/attention_calls.hpp"
#include "lib/context/ring_attention.hpp"
#include "lib/core/build_info.hpp"

namespace pecia::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<int64_t> contexts = {1024, 8192, 65536};
  int64_t batch = 64, layers = 32;
  int steps = 200;
  bool json = false;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("--contexts", options.contexts, "Tokens in each sequence's cache")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Sequences")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--layers", options.layers, "Layers of the model")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--steps", options.steps,
                 "Decode steps that are timed, after as many that are not")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--json", options.json, "Print JSON lines instead of a table");
}

// The heads are those of a model of 8B, and the tiles those of the kernels on an H100
// (kernels/cuda/attention.cu). A head has few elements, so that caches of any length fit the
// address space; none is read or written.
constexpr int64_t num_heads = 32, num_kv_heads = 8, head_dim = 16;
constexpr kernels::cuda::PlanLimits limits = {
    .wide_rows = 64, .narrow_rows = 16, .blocks_wanted = 4 * 132};

/// Plans attention as the CUDA backend does, and computes nothing.
class PlanningBackend : public kernels::Backend {
 public:
  explicit PlanningBackend(device::Device& device) : staging_(device), calls_(staging_) {}

  std::string_view name() const override { return "planning"; }
  void attention(const kernels::AttentionArgs& args, device::Stream& stream) override {
    kernels::validate(args);
    room_ = calls_.plan(args, limits, true, stream)->room;
  }
  void kv_store(const kernels::KvStoreArgs& args, device::Stream& stream) override {
    staging_.send_array(args.slots, stream);
  }
  /// The room that the last call took.
  const kernels::cuda::PlanRoom& room() const { return room_; }

  void embedding(const kernels::EmbeddingArgs&, device::Stream&) override {}
  void linear(const kernels::LinearArgs&, device::Stream&) override {}
  void quantize_rows(const kernels::QuantizeRowsArgs&, device::Stream&) override {}
  void add(const kernels::AddArgs&, device::Stream&) override {}
  void rms_norm(const kernels::RmsNormArgs&, device::Stream&) override {}
  void rope(const kernels::RopeArgs&, device::Stream&) override {}
  void column_sums(const kernels::ColumnSumsArgs&, device::Stream&) override {}
  void merge(const kernels::MergeArgs&, device::Stream&) override {}
  void gated_activation(const kernels::GatedActivationArgs&, device::Stream&) override {}
  void sample(const kernels::SamplingArgs&, device::Stream&) override {}
  void log_probs(const kernels::LogProbsArgs&, device::Stream&) override {}
  void shortlist(const kernels::ShortlistArgs&, device::Stream&) override {}

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
};

/// Microseconds of a step's parts.
struct StepTimes {
  std::vector<double> pass, first, others, all;
};

class Batch {
 public:
  Batch(const Options& options, int64_t context)
      : options_(options),
        cache_({1, num_kv_heads, head_dim, DType::bf16},
               options.batch * (context + 2 * options.steps + options.batch), *device_),
        attention_(*alone_, {*device_, *stream_, backend_, recorder_}, cache_, num_heads, {0}) {
    for (int64_t i = 0; i < options.batch; ++i) {
      attention_.add(i, context + 2 * options.steps + options.batch);
      attention_.begin_pass({{i, 0, context + i}}, parallel::Ring::pass_kv);  // lengths differ
    }
  }

  void step(StepTimes& times) {
    std::vector<parallel::PassSequence> pass;
    for (int64_t i = 0; i < options_.batch; ++i)
      pass.push_back({i, attention_.map().length(i), 1, 0});
    const auto begin = Clock::now();
    attention_.begin_pass(pass, parallel::Ring::pass_q);
    const auto planned = Clock::now();
    kernels::Step step(backend_, *stream_);
    layer();
    const auto sent = Clock::now();
    for (int64_t i = 1; i < options_.layers; ++i) layer();
    step.end();
    const auto end = Clock::now();
    const auto us = [](auto from, auto to) {
      return std::chrono::duration<double, std::micro>(to - from).count();
    };
    times.pass.push_back(us(begin, planned));
    times.first.push_back(us(planned, sent));
    times.others.push_back(us(sent, end));
    times.all.push_back(us(begin, end));
  }

  const kernels::cuda::PlanRoom& room() const { return backend_.room(); }

 private:
  void layer() {
    const TensorView q(static_cast<void*>(rows_.data()), DType::fp32,
                       {options_.batch, num_heads, head_dim});
    const TensorView kv(static_cast<void*>(rows_.data()), DType::fp32,
                        {options_.batch, num_kv_heads, head_dim});
    attention_.run(0, q, kv, kv, q);
  }

  const Options& options_;
  std::unique_ptr<device::Device> device_ = device::make_host_device(1);
  std::unique_ptr<device::Stream> stream_ = device_->make_stream();
  std::unique_ptr<comm::Communicator> alone_ = comm::make_null_communicator();
  PlanningBackend backend_{*device_};
  report::Recorder recorder_;
  context::KvCache cache_;
  context::RingAttention attention_;
  std::vector<float> rows_ = std::vector<float>(options_.batch * num_heads * head_dim);
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size()) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void run(const Options& options) {
  if (!options.json)
    fmt::print(
        "host work of attention in a decode step, {} sequences, {} layers, {}\n"
        "{:>8}{:>10}{:>10}{:>10}{:>16}{:>16}{:>8}{:>8}\n",
        options.batch, options.layers, build_info().commit, "context", "us/step", "min us",
        "pass us", "first layer us", "other layers us", "runs", "tiles");
  for (const int64_t context : options.contexts) {
    Batch batch(options, context);
    StepTimes warm, times;
    for (int step = 0; step < options.steps; ++step) batch.step(warm);
    for (int step = 0; step < options.steps; ++step) batch.step(times);
    const double least = *std::min_element(times.all.begin(), times.all.end());
    const kernels::cuda::PlanRoom& room = batch.room();
    const int64_t tiles = room.wide.query_tiles + room.narrow.query_tiles;
    if (options.json)
      std::puts(nlohmann::json{{"commit", build_info().commit},
                               {"context", context},
                               {"batch", options.batch},
                               {"layers", options.layers},
                               {"step_us", median(times.all)},
                               {"least_step_us", least},
                               {"pass_us", median(times.pass)},
                               {"first_layer_us", median(times.first)},
                               {"other_layers_us", median(times.others)},
                               {"room_for_runs", room.runs},
                               {"room_for_tiles", tiles}}
                    .dump()
                    .c_str());
    else
      fmt::print("{:>8}{:>10.1f}{:>10.1f}{:>10.1f}{:>16.1f}{:>16.1f}{:>8}{:>8}\n", context,
                 median(times.all), least, median(times.pass), median(times.first),
                 median(times.others), room.runs, tiles);
  }
}

}  // namespace
}  // namespace pecia::bench

int main(int argc, char** argv) {
  using namespace pecia;
  CLI::App app("Times the host's work for attention before a decode step on a GPU");
  bench::Options options;
  bench::add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    bench::run(options);
  } catch (const Error& error) {
    std::fprintf(stderr, "bench_plan: %s\n", error.what());
    return 1;
  }
  return 0;
}
