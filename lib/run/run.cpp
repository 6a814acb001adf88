// SPDX-License-Identifier: Apache-2.0
#include "lib/run/run.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "lib/batch/arrivals.hpp"
#include "lib/batch/earlier.hpp"
#include "lib/batch/identity.hpp"
#include "lib/batch/output.hpp"
#include "lib/batch/turn_counts.hpp"
#include "lib/cluster/launch.hpp"
#include "lib/cluster/process_grid.hpp"
#include "lib/comm/agree.hpp"
#include "lib/context/device_clock.hpp"
#include "lib/core/build_info.hpp"
#include "lib/core/fp8_vector.hpp"
#include "lib/execute/replica_loop.hpp"
#include "lib/measure/measured.hpp"
#include "lib/measure/peak.hpp"
#include "lib/measure/product_rates.hpp"
#include "lib/model/device_weights.hpp"
#include "lib/report/format.hpp"
#include "lib/report/log.hpp"
#include "lib/resources/compute_place.hpp"
#include "lib/run/run_progress.hpp"
#include "lib/run/run_summary.hpp"
#include "lib/run/signals.hpp"
#include "lib/run/starts.hpp"
#include "lib/run/stop.hpp"
#include "lib/run/validate.hpp"
#include "lib/run/watch_ranks.hpp"

namespace pecia::run {
namespace {

constexpr int exit_failed_turns = 3;
constexpr int exit_drained = 75;

job::Job agreed_job(const RunOptions& options, comm::Communicator& world) {
  std::optional<job::Job> job;
  comm::together(world, [&] {
    job = job::load_job(options.job_file, options.overrides);
    job::refuse_unimplemented(*job);
  });
  const BuildInfo& build = build_info();
  comm::require_same(world, "programs", build.version + build.commit + build.compiler);
  comm::require_same(world, "job files", job::to_yaml(*job));
  return std::move(*job);
}

/// A group and this process's place in the grid.
struct Groups {
  std::unique_ptr<comm::Communicator> ordered;  ///< all ranks, in grid order
  std::unique_ptr<comm::Communicator> replica;
  std::vector<comm::RackServerGpu> places;  ///< by rank of `ordered`
  int dp = 0;

  std::vector<comm::RackServerGpu> replica_places() const {
    const auto begin = places.begin() + int64_t{dp} * replica->size();
    return {begin, begin + replica->size()};
  }
};

Groups make_groups(const job::Job& job, const resources::Resources& resources,
                   comm::Communicator& world) {
  Groups groups;
  const auto places = cluster::find_places(world, job.topology);
  const cluster::ProcessGrid grid({resources.dp, resources.cp, resources.sp, resources.tp}, places);
  const cluster::GridCoordinates mine = grid.coordinates(world.rank());
  groups.dp = mine.dp;
  const int in_replica = (mine.cp * resources.sp + mine.sp) * resources.tp + mine.tp;
  groups.ordered =
      world.split(0, mine.dp * resources.cp * resources.sp * resources.tp + in_replica);
  groups.replica = groups.ordered->split(mine.dp, in_replica);
  for (int dp = 0; dp < resources.dp; ++dp)
    for (const int rank : grid.replica(dp)) groups.places.push_back(places[rank]);
  return groups;
}

model::Weights load_weights(const job::Job& job, const model::ModelConfig& config,
                            parallel::WeightCut cut, int threads, comm::Communicator& world) {
  std::optional<model::Weights> weights;
  device::ThreadPool pool(threads);
  comm::together(world, [&] {
    std::optional<DType> resident;  // absent: as stored; what is rounded to codes is so later
    if (job.model.dtype && resources::quantize_of(job) == model::Quantize::nothing)
      resident = resources::dtype_of(*job.model.dtype);
    weights.emplace(config, io::Checkpoint(job.model.path), resident, cut, pool);
  });
  const auto host = world.split_by_host();
  comm::together(world, [&] { weights->check_finite(host->rank(), host->size(), pool); });
  return std::move(*weights);
}

/// This rank's own copy: on its GPU, of codes, or where the job wants one; absent where weights are
/// mapped, or converted, which is a copy. Fails on all ranks together.
std::optional<model::DeviceWeights> copied(const job::Job& job, const model::Weights& weights,
                                           const resources::ComputePlace& place,
                                           comm::Communicator& world, spdlog::logger& log) {
  std::optional<model::DeviceWeights> there;
  const model::Quantize quantize = resources::quantize_of(job);
  const bool replicate = job.model.replicate && weights.converted_bytes() == 0;
  if (!place.on_gpu() && quantize == model::Quantize::nothing && !replicate) return there;
  const int64_t room =
      place.on_gpu() ? place.device->memory().free_bytes : resources::free_host_bytes(world);
  comm::together(world, [&] {
    resources::require_room(weights, quantize, room, place.on_gpu());
    there.emplace(weights, *place.device, *place.stream, *place.backend, quantize);
  });
  const auto bytes = world.all_reduce_sum(static_cast<double>(there->bytes()));
  const auto ms = world.all_reduce_max(static_cast<int64_t>(1e3 * there->seconds()) + 1);
  log.info("weights {}: {} in {:.1f} s, {:.1f} GB/s",
           place.on_gpu() ? "on the GPUs" : "of all ranks",
           report::format_bytes(static_cast<int64_t>(bytes)), 1e-3 * static_cast<double>(ms),
           bytes / static_cast<double>(ms) * 1e-6);
  return there;
}

/// What the GPU has left for this rank beside the activations of a pass. Of ranks that may share
/// it, all those of the host count. Collective over `world`.
int64_t free_gpu_bytes(const job::Job& job, const device::Device& device,
                       comm::Communicator& world) {
  const int sharing = job.allow_gpu_sharing ? world.split_by_host()->size() : 1;
  world.barrier();  // all weights are there
  return std::max<int64_t>(
      0, device.memory().free_bytes / sharing - resources::activation_bytes(true));
}

report::TraceDetail trace_detail(job::Trace trace) {
  if (trace == job::Trace::full) return report::TraceDetail::full;
  return trace == job::Trace::off ? report::TraceDetail::off : report::TraceDetail::summary;
}

/// Waits until all replicas have finished, however long: their work may be uneven, so that none of
/// the limits for a collective holds here. A rank that is asked to stop meanwhile tells the others.
void wait_for_replicas(comm::SharedCounter& finished, int replicas, Stop& stop,
                       const std::function<void()>& look) {
  using std::chrono::milliseconds;
  constexpr milliseconds longest(200);
  for (milliseconds pause(1); finished.value() < replicas; pause = std::min(2 * pause, longest)) {
    stop.agreed(stop.reason() != StopReason::none);
    look();
    std::this_thread::sleep_for(pause);
  }
}

/// What replicas take arrived requests by; null where they are all there from the start.
std::unique_ptr<comm::SharedCounters> make_claims(const job::Job& job, const batch::Inputs* inputs,
                                                  comm::Communicator& world) {
  if (job.batch.arrivals == job::Arrivals::ignore) return nullptr;
  const auto mine = inputs != nullptr ? static_cast<int64_t>(inputs->requests().size()) : 0;
  return world.make_counters(world.all_reduce_max(mine));
}

const char* words_of(StopReason reason) {
  return reason == StopReason::wall_time ? "the wall time is nearly over"
                                         : "asked to stop by a signal";
}

/// What earlier starts left, the same on every rank, and the job's inputs in the order of their
/// results. The hashes are the chief's alone. Collective over `world`.
batch::Earlier agreed_inputs(job::Job& job, const RunOptions& options, bool chief,
                             comm::Communicator& world, comm::Communicator& ordered) {
  batch::Earlier earlier;
  comm::together(world, [&] {
    if (chief) earlier = batch::read_earlier(job, options.fresh, options.retry_failed);
  });
  std::vector<std::byte> bytes = to_bytes(earlier);
  ordered.broadcast(bytes, 0);
  if (!chief) earlier = from_bytes<batch::Earlier>(bytes);
  batch::reorder_inputs(job, earlier.order);
  return earlier;
}

/// One rank reads all tokens, for the ranks that have inputs. Collective over `world`.
void leave_out_bad_tokens(batch::Inputs* inputs, bool chief, comm::Communicator& world,
                          comm::Communicator& ordered) {
  std::vector<int64_t> rows;
  comm::together(world, [&] {
    if (chief) rows = inputs->rows_with_bad_tokens();
  });
  Writer writer;
  writer(rows);
  std::vector<std::byte> bytes = writer.take();
  ordered.broadcast(bytes, 0);
  Reader reader(bytes);
  reader(rows);
  if (inputs != nullptr) inputs->leave_out(rows);
}

/// What the KV slots there are cannot hold counts for nothing in the time that is left. After the
/// sources have their order, which all replicas have alike.
void leave_out_too_large(const job::Job& job, const io::ResultsFile& results,
                         const resources::Resources& resources,
                         const schedule::SchedulerLimits& limits, batch::Inputs& inputs) {
  std::vector<int64_t> rows;
  for (const batch::InputRequest* request : batch::open_requests(inputs, results))
    if (resources::most_slots(job, inputs, *request, resources) > limits.kv_tokens)
      for (const schedule::Finished& failed :
           batch::refused_at_once(batch::load_open(inputs, results, *request), limits))
        rows.push_back(failed.row);
  inputs.leave_out(rows);
}

/// What an earlier run into the same results measured; "" where there is none. On every rank.
std::string kept_measurement(const job::Job& job, const RunOptions& options, bool chief,
                             comm::Communicator& ordered) {
  const auto path = job.output / "results.h5";
  std::vector<std::byte> bytes;
  std::error_code unreachable;  // what is wrong with the folder, who takes it says
  if (chief && !options.fresh && std::filesystem::exists(path, unreachable)) {
    try {
      const std::string text = io::ResultsFile(path).layout().measured;
      const auto* data = reinterpret_cast<const std::byte*>(text.data());
      bytes.assign(data, data + text.size());
    } catch (const Error&) {
      // Whoever opens the results for good says what is wrong with them.
    }
  }
  ordered.broadcast(bytes, 0);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

schedule::SchedulerLimits scheduler_limits(const job::Job& job, const model::ModelConfig& config,
                                           const resources::Resources& resources,
                                           const measure::Measured& measured,
                                           schedule::TimeLimit time,
                                           std::shared_ptr<const io::Detokenizer> detokenizer) {
  std::vector<int32_t> stops = job.generation.stop_token_ids.value_or(config.stop_token_ids);
  if (job.generation.ignore_eos)
    std::erase_if(stops, [&](int32_t token) {
      return std::count(config.stop_token_ids.begin(), config.stop_token_ids.end(), token) > 0;
    });
  return {.ring_size = resources.cp,
          .kv_tokens = resources.kv_tokens,
          .max_sequences = resources.max_sequences,
          .max_batch_tokens = resources.max_batch_tokens,
          .max_positions = config.max_positions,
          .stop_token_ids = stops,
          .detokenizer = std::move(detokenizer),
          .logprobs = job.generation.logprobs,
          .prompt_logprobs = job.generation.prompt_logprobs,
          .vocab = config.vocab,
          .modes = parallel::pass_modes({resources.degrees(), resources.prefill, resources.decode},
                                        measured.shift_threshold),
          .policy = job.batch.policy,
          .ring = resources.ring,
          .ring_shape = {static_cast<double>(config.num_heads),
                         static_cast<double>(config.num_kv_heads),
                         element_bytes(resources.kv_dtype, config.head_dim)},
          .ring_rates = measured.ring,
          .layout_invariant = job.reproducible == parallel::Reproducible::layout,
          .time = std::move(time)};
}

/// "a prefill pass of 512 tokens, about 3 s".
std::string to_text(const schedule::Plan& plan, std::optional<double> seconds) {
  int64_t tokens = 0;
  for (const schedule::PlanItem& item : plan.items) tokens += item.rows.count;
  return fmt::format("a {} pass of {} token{}{}", batch::phase_name(plan), tokens,
                     tokens == 1 ? "" : "s",
                     seconds ? ", about " + report::format_duration(*seconds) : "");
}

/// Says which open requests no start of this length can answer, as far as the rates are known.
void name_too_long(const batch::Inputs& inputs, const io::ResultsFile& results,
                   const schedule::Scheduler& scheduler, double start_s, spdlog::logger& log) {
  const batch::InputRequest* longest = nullptr;
  double longest_s = start_s;
  int64_t count = 0;
  for (const batch::InputRequest* request : batch::open_requests(inputs, results)) {
    if (request->work == 0) continue;  // it cannot run
    const auto [prompt, answer] = batch::first_lengths(inputs, *request);
    const double seconds = scheduler.seconds_alone(prompt, answer);
    count += seconds > start_s;
    if (seconds > longest_s) longest = request, longest_s = seconds;
  }
  if (longest == nullptr) return;
  log.warn("request '{}' needs about {}, a start has {}{}: {}", inputs.prompt(*longest).id,
           report::format_duration(longest_s), report::format_duration(start_s),
           count > 1 ? fmt::format(" ({} requests need more than that)", count) : "",
           scheduler.keeps_kv()
               ? "what a start reads of it is kept for the next one (kv.save)"
               : "it comes last; raise limits.wall_time, use more ranks, or let kv.save be auto");
}

/// Seconds from its begin that a start may be assumed to have where nothing says when it ends: not
/// all of what its predecessors had. They ended before the work did, whoever ended them. Absent
/// where it is the first one. Collective over `world`; `earlier` on the chief.
std::optional<double> assumed_seconds(const std::vector<report::StartRecord>& earlier,
                                      comm::Communicator& world) {
  constexpr size_t telling = 3;
  constexpr double safe_share = 0.9;
  double shortest = std::numeric_limits<double>::infinity();
  for (size_t i = earlier.size() - std::min(telling, earlier.size()); i < earlier.size(); ++i)
    shortest = std::min(shortest, safe_share * earlier[i].seconds);
  const auto ms = world.all_reduce_max(earlier.empty() ? 0 : std::llround(1e3 * shortest));
  if (ms == 0) return {};
  return 1e-3 * static_cast<double>(ms);
}

double seconds_since(Stop::Clock::time_point begin) {
  return std::chrono::duration<double>(Stop::Clock::now() - begin).count();
}

/// What a request keeps is of use only where nobody asks about its prompt's own tokens.
bool keeps_kv(const job::Job& job) {
  return job.kv.save.on && job.generation.prompt_logprobs == 0;
}

execute::KvSaves::Settings kv_settings(const job::Job& job, const model::ModelConfig& config,
                                       const resources::Resources& resources,
                                       const io::ResultsFile& results, spdlog::logger& log) {
  constexpr double share_of_grace = 0.8;  // the rest is for the report
  return {.folder = job.output / "kv",
          .identity = batch::kv_identity(results.layout().identity, job),
          .bytes = execute::kv_bytes(config, resources),
          .seconds = share_of_grace * job.limits.grace_s,
          .warn = [&log](const std::string& text) { log.warn(text); }};
}

Stop::Clock::time_point after(Stop::Clock::time_point begin, double seconds) {
  return begin +
         std::chrono::duration_cast<Stop::Clock::duration>(std::chrono::duration<double>(seconds));
}

/// Of codes that are no failure of the program, for whoever reads the log: Open MPI's mpirun adds
/// ten lines to any but 0, the last of which say that the job was terminated.
std::string code_text(int code) {
  const bool by_mpirun = cluster::variable("OMPI_COMM_WORLD_SIZE").has_value();
  return fmt::format("exit code {}{}", code, by_mpirun ? ", which mpirun calls an error" : "");
}

int exit_code(const batch::TurnCounts& left, StopReason reason) {
  if (left.unfinished() > 0 && reason == StopReason::none)
    fail<SharedError>("{} turns were left open although the run was not asked to stop",
                      left.unfinished());
  if (left.unfinished() > 0) return exit_drained;
  return left.failed > 0 ? exit_failed_turns : 0;
}

}  // namespace

int run(const RunOptions& options, comm::Communicator& world, watch::Watch& watch,
        report::Startup& startup) {
  const auto begin = Stop::Clock::now();
  const double began_unix_s = report::unix_time();
  const DrainSignals signals;  // first, so that a signal during the start drains too
  startup.begin("read_job");
  job::Job job = agreed_job(options, world);  // the order of its inputs may change below
  world.set_wait_timeout(std::chrono::seconds(std::llround(std::ceil(job.limits.wait_s))));
  Activity& activity = *watch.activity();
  const auto begin_phase = [&](const char* name) {
    activity.phase = name;
    startup.begin(name);
  };
  model::ModelConfig config;
  resources::Resources resources;
  std::optional<double> drain_s;
  resources.gpus = resources::computes_on_gpus(job, world);
  comm::together(world, [&] {
    drain_s = seconds_to_drain(job.limits);
    config = read_model_config(job);
    resources::resolve_grid(job, config, world.size(), resources);
    if (resources::quantize_of(job) == model::Quantize::fp8)
      resources::require_fp8_widths(config, resources);
  });
  comm::together(world, [&] { resources.threads = resources::threads_of_rank(world); });
  const resources::ComputePlace place =
      resources::make_compute_place(job, resources.gpus, resources.threads, world);
  const Groups groups = make_groups(job, resources, world);
  const bool chief = groups.ordered->rank() == 0, planning = groups.replica->rank() == 0;
  const auto log = report::make_logger(groups.ordered->rank(), world.size());
  if (resources.gpus) log->info("attention of prompts by {}", place.backend->attention_library());
  const std::filesystem::path board = watch_ranks(watch, job, world, *log);
  begin_phase("load_weights");
  const model::Weights weights =
      load_weights(job, config, execute::Worker::weight_cut(groups.replica->rank(), resources.tp),
                   resources.threads.count, world);
  const auto own = copied(job, weights, place, world, *log);
  const model::WeightViews& views = own ? *own : static_cast<const model::WeightViews&>(weights);
  const DType held = views.matrix_type();
  if (job.model.compute == job::Precision::bf16 && place.backend->operand_type(held) != DType::bf16)
    fail<InputError>(
        "model.compute: bf16 multiplies weights of that type, and those of this model are {}; use "
        "compute: auto, or model.dtype: bf16",
        name_of(held));
  std::optional<measure::WeightRounding> rounding;
  if (own && own->quantized() != model::Quantize::nothing) {
    rounding = measure::gather_rounding(own->rounding(), world);
    log->info("weights rounded to {}, off by {}", name_of(held), to_text(*rounding));
  }
  begin_phase("read_inputs");
  const batch::Earlier earlier = agreed_inputs(job, options, chief, world, *groups.ordered);
  std::optional<batch::Inputs> inputs;
  std::shared_ptr<const io::Detokenizer> detokenizer;
  comm::together(world, [&] {
    if (!planning) return;
    inputs.emplace(job, config, earlier.turns);
    detokenizer = inputs->detokenizer();
  });
  leave_out_bad_tokens(inputs ? &*inputs : nullptr, chief, world, *groups.ordered);
  resources::resolve_memory(job, config, views, inputs ? &*inputs : nullptr,
                            resources.gpus ? free_gpu_bytes(job, *place.device, world)
                                           : resources::free_host_bytes(world),
                            resources, world);

  begin_phase("measure");
  report::Recorder recorder(trace_detail(job.report.trace));
  recorder.publish_to(activity);
  if (place.on_gpu())
    recorder.time_by(std::make_unique<context::DeviceClock>(
        *place.device, *place.stream, [&recorder] { return recorder.now_ns(); }));
  const context::Compute compute{*place.device, *place.stream, *place.backend, recorder};
  const auto tensors = resources::tensor_group(job, *groups.replica, place);
  if (tensors && groups.replica->size() > 1)
    log->info("tensors travel by {}", tensors->tensors_by());
  execute::Worker worker(tensors ? *tensors : *groups.replica, config, views, compute,
                         {.sp = resources.sp,
                          .tp = resources.tp,
                          .kv_dtype = resources.kv_dtype,
                          .kv_tokens = resources.kv_tokens,
                          .logprobs = job.generation.logprobs,
                          .prompt_logprobs = job.generation.prompt_logprobs,
                          .places = groups.replica_places(),
                          .layout_invariant = job.reproducible == parallel::Reproducible::layout});
  const auto kept =
      measure::parse_measured(kept_measurement(job, options, chief, *groups.ordered), resources);
  const measure::Measured measured =
      kept ? *kept
           : measure::measure_choices(job, config, resources, world, worker.groups(),
                                      worker.cache().shape(), compute, *log);
  resources.shift_threshold = measured.shift_threshold;

  begin_phase("open_results");
  std::optional<batch::Output> output;
  std::optional<io::ResultsFile> results;
  std::vector<report::StartRecord> earlier_starts;  // of this run, on the chief
  comm::together(world, [&] {
    if (!chief) return;
    io::ResultsLayout layout = inputs->layout();
    layout.identity = batch::identity(job, config, weights.checkpoint(), resources.kv_dtype,
                                      earlier.input_sha256);
    layout.settings = {batch::turn_settings(job)};
    layout.measured = to_json(measured, resources);
    output.emplace(job.output, layout, options.fresh, options.retry_failed,
                   [&](const std::string& text) { log->info(text); });
    results.emplace(output->results_path());
    if (output->continues()) earlier_starts = report::read_starts(job.output / "progress.json");
    if (keeps_kv(job))
      execute::sweep_kv_saves(execute::make_kv_folder(job.output, job.kv.save.folder), *results,
                              options.fresh);
    if (!board.empty()) watch::WatchBoard::remove_others(board);
  });
  const auto report_path = job.output / "report.json";
  const batch::TurnCounts found = batch::count_turns(chief ? &*results : nullptr, world);
  const bool reported =
      world.all_reduce_max(
          chief && report::is_final_report(report_path, found.done, found.failed) ? 1 : 0) > 0;
  if (found.unfinished() == 0 && reported) {
    log->info("nothing is left to do: {} turns done, {} failed{} · {}", found.done, found.failed,
              found.failed > 0 ? " (--retry-failed takes them again)" : "",
              (job.output / "results.h5").string());
    if (found.failed > 0) log->info("{}", code_text(exit_failed_turns));
    return found.failed > 0 ? exit_failed_turns : 0;
  }

  begin_phase("measure_peak");
  report::PeakReport peak =
      measure::measure_peak(world, compute, held, resources.threads.cache_bytes);
  // What passes may be expected to take goes by our own products.
  const double product_flops = world.all_reduce_sum(measure::measure_product_flops(compute, held));
  const RunFacts facts{job,
                       config,
                       resources,
                       own ? own->bytes() : weights.resident_bytes(),
                       groups.places,
                       resources.gpus ? place.device->info().name : "",
                       place.backend->attention_library(),
                       resources.gpus ? held : place.backend->operand_type(held),
                       held,
                       rounding};
  if (chief)
    log->info(first_line(facts, static_cast<int64_t>(inputs->requests().size()),
                         inputs->prompt_tokens()));
  if (chief && inputs->refused_requests() > 0)
    log->info("{} of them cannot run; the results say why", inputs->refused_requests());

  const Start start = start_of(resources, facts.compute);
  comm::together(world, [&] {
    if (!chief) return;
    const auto warning =
        record_start(job.output, start, found.done + found.partial > 0, job.reproducible);
    if (warning) log->warn("{}", *warning);
  });
  if (chief && job.kv.save.on && !keeps_kv(job))
    log->info("kv.save: nothing is kept, as generation.prompt_logprobs has every prompt computed");
  if (chief && keeps_kv(job)) {
    const auto line =
        execute::keeping_line(config, *inputs, resources, product_flops / resources.dp);
    if (!line.empty()) log->info(line);
  }

  begin_phase("schedule");
  const auto end_s = drain_s ? drain_s : assumed_seconds(earlier_starts, world);
  const auto taken = world.make_counter(), stopped = world.make_counter(),
             finished = world.make_counter();
  const auto claims = make_claims(job, inputs ? &*inputs : nullptr, world);
  Stop stop(signals, drain_s ? std::optional(after(begin, *drain_s)) : std::nullopt, *stopped);
  RunProgress progress(world,
                       {.replicas = resources.dp,
                        .replica = groups.dp,
                        .ranks = groups.replica->size(),
                        .layers = config.layers},
                       recorder);
  std::unique_ptr<batch::Source> source;
  std::optional<schedule::Scheduler> scheduler;
  std::optional<execute::KvSaves> saves;
  std::optional<execute::PassMaker> pass_maker;
  comm::together(world, [&] {
    if (!planning) return;
    if (!results) results.emplace(job.output / "results.h5");
    if (claims)
      source = std::make_unique<batch::ArrivalSource>(*inputs, *results, job.batch.order, *claims);
    else
      source = std::make_unique<batch::ListSource>(*inputs, *results, job.batch.order, *taken);
    const double start_s =
        end_s ? *end_s - seconds_since(begin) : std::numeric_limits<double>::infinity();
    const schedule::PassTimes times = kept_times(
        job.output, start, resources::estimated_times(config, resources, held, product_flops));
    const schedule::SchedulerLimits limits = scheduler_limits(
        job, config, resources, measured,
        {.end_s = start_s, .times = times, .keeps_kv = keeps_kv(job), .assumed = !drain_s},
        detokenizer);
    scheduler.emplace(limits);
    if (keeps_kv(job)) saves.emplace(kv_settings(job, config, resources, *results, *log), *results);
    if (chief) {
      leave_out_too_large(job, *results, resources, limits, *inputs);
      progress.show(job, *inputs, *results, earlier_starts,
                    {.began_unix_s = began_unix_s,
                     .seconds = seconds_since(begin),
                     .cores = resources.threads.cores_of_job,
                     .gpus = num_gpus(facts)});
    }
    if (chief && end_s && !drain_s)
      log->info(
          "no wall time is stated, but earlier starts ended after {} or more: what can be "
          "answered by then comes first",
          report::format_duration(*end_s));
    if (chief && drain_s && start_s > 0)
      name_too_long(*inputs, *results, *scheduler, start_s, *log);
    pass_maker.emplace(execute::PassMaker{
        *scheduler, *source, *results,
        [&](const std::string& ring) { return resources::mode_name(resources, ring); }, groups.dp,
        [&](bool told) { return stop.agreed(told); },
        [&](const batch::ReplicaTotals& totals) { progress.update(totals); }});
    pass_maker->saves = saves ? &*saves : nullptr;
    if (chief)
      pass_maker->on_plan = [](const schedule::Plan& plan, std::optional<double> seconds) {
        DrainSignals::stops_after(to_text(plan, seconds));
      };
    pass_maker->on_begin = [&](const schedule::Plan& plan, const batch::ReplicaTotals& totals) {
      progress.begin_pass(plan, totals);
    };
    worker.while_computing([&] { progress.look(); });
  });

  startup.end();
  const batch::ReplicaTotals totals =
      execute::run_replica(*groups.replica, worker, recorder, pass_maker ? &*pass_maker : nullptr,
                           [&] { return stop.reason() != StopReason::none; });
  if (planning) {
    progress.add(totals);
    finished->next();
  }
  activity.phase = "finish";
  wait_for_replicas(*finished, resources.dp, stop, [&] {
    if (chief) progress.look();
  });
  const bool left_for_later =
      planning && (scheduler->left_for_later() || source->passed_over() > 0);
  const auto mine =
      std::max(stop.reason(), left_for_later ? StopReason::wall_time : StopReason::none);
  const auto reason = static_cast<StopReason>(world.all_reduce_max(static_cast<int64_t>(mine)));
  const batch::TurnCounts left = batch::count_turns(chief ? &*results : nullptr, world);
  if (chief) progress.finish(left);
  if (chief && keeps_kv(job)) execute::sweep_kv_saves(job.output / "kv", *results, false);
  if (chief) keep_times(job.output, start, scheduler->times());

  const double seconds = seconds_since(begin);
  recorder.wait_for_times();
  measure::measure_peak_again(world, compute, held, peak);
  auto report = gather_report(*groups.ordered, facts, worker, recorder, totals, seconds);
  if (job.report.trace != job::Trace::off)
    write_traces(*groups.ordered, job.output / "trace", groups.dp, recorder);
  if (report) {
    report->counts.partial = left.partial;
    report->counts.open = left.open;
    report->startup = startup;
    report->peak = peak;
    report->began_unix_s = began_unix_s;
    report->earlier = earlier_starts;
    report->all_done = left.done;
    report->all_failed = left.failed;
    report::write_report(report_path, *report);
    const std::string keeping = report::kept_line(report->kv);
    if (!keeping.empty()) log->info(keeping);
    log->info(report::last_line(*report, report_path));
    if (left.unfinished() > 0 && reason != StopReason::none)
      log->info("{}: {} turns are open; the same command continues the run; {}", words_of(reason),
                left.unfinished(), code_text(exit_drained));
    else if (left.unfinished() == 0 && left.failed > 0)
      log->info("{} turns failed: pecia inspect {} says why, --retry-failed takes them again; {}",
                left.failed, job.output.string(), code_text(exit_failed_turns));
  }
  return exit_code(left, reason);
}

}  // namespace pecia::run
