// SPDX-License-Identifier: Apache-2.0
#include "tests/support/replica.hpp"

#include <algorithm>
#include <cstdlib>

#include "lib/base/core/random.hpp"
#include "lib/base/device/cuda_device.hpp"
#include "lib/engine/execute/replica.hpp"
#include "lib/engine/schedule/job_limits.hpp"
#include "lib/model/config/stage.hpp"
#include "lib/ranks/comm/communicator_over.hpp"
#include "lib/ranks/comm/mpi_environment.hpp"
#include "lib/ranks/comm/nccl_communicator.hpp"
#include "lib/ranks/comm/of_first.hpp"
#include "lib/ranks/comm/staged_communicator.hpp"
#include "lib/ranks/parallel/stages.hpp"
#include "lib/work/resources/compute_place.hpp"
#include "tests/kernels/emulator/backend.hpp"
#include "tests/kernels/emulator/plain_sdpa.hpp"
#include "tests/support/fake_nccl.hpp"
#include "tests/support/separate_device.hpp"

namespace pecia::test {

batch::Request greedy_request(int64_t row, std::vector<int32_t> tokens, int32_t new_tokens) {
  batch::Turn turn;
  turn.row = row;
  turn.tokens = std::move(tokens);
  turn.max_new_tokens = new_tokens;
  batch::Request request;
  request.turns.push_back(std::move(turn));
  return request;
}

batch::Request greedy_turns(io::Followup followup, int64_t& row, std::span<const int64_t> lengths,
                            int64_t vocab, uint64_t seed, int32_t new_tokens) {
  batch::Request request;
  request.followup = followup;
  for (const int64_t length : lengths) {
    auto tokens = random_tokens(length, vocab, seed + static_cast<uint64_t>(row));
    request.turns.push_back(greedy_request(row++, std::move(tokens), new_tokens).turns.front());
  }
  return request;
}

std::vector<batch::Request> ragged_requests(std::span<const int64_t> lengths, int64_t vocab,
                                            uint64_t seed) {
  std::vector<batch::Request> requests;
  int64_t row = 0;
  for (const int64_t length : lengths) {
    auto tokens = random_tokens(length, vocab, seed + static_cast<uint64_t>(row));
    requests.push_back(
        greedy_request(row, std::move(tokens), static_cast<int32_t>(3 + row % 3 * 4)));
    ++row;
  }
  for (const io::Followup followup : {io::Followup::chain, io::Followup::fork}) {
    const int64_t of_turns[] = {40, 3, 9};
    requests.push_back(greedy_turns(followup, row, of_turns, vocab, seed, 5));
  }
  requests.back().turns.front().max_new_tokens = 0;
  return requests;
}

void set_modes(ReplicaSettings& settings, const parallel::ModePair& pair,
               std::optional<int64_t> shift_threshold, std::optional<int64_t> gather_threshold) {
  settings.sp = pair.degrees.sp;
  settings.tp = pair.degrees.tp;
  settings.ep = pair.degrees.ep;
  settings.modes = parallel::pass_modes(pair, shift_threshold, gather_threshold);
}

namespace {

/// What a place is made of.
struct Parts {
  const char* name;
  TestPlace place;
  enum { host, separate, gpu } device;
  enum { cpu, emulated, cuda } kernels;
  enum { own, staged, nccl } transfers;
};
constexpr Parts places[] = {
    {"host", TestPlace::host, Parts::host, Parts::cpu, Parts::own},
    {"separate_staged", TestPlace::separate_staged, Parts::separate, Parts::cpu, Parts::staged},
    {"separate_nccl", TestPlace::separate_nccl, Parts::separate, Parts::cpu, Parts::nccl},
    {"emulated_staged", TestPlace::emulated_staged, Parts::separate, Parts::emulated,
     Parts::staged},
    {"emulated_nccl", TestPlace::emulated_nccl, Parts::separate, Parts::emulated, Parts::nccl},
    {"cuda_staged", TestPlace::cuda_staged, Parts::gpu, Parts::cuda, Parts::staged},
    {"cuda_nccl", TestPlace::cuda_nccl, Parts::gpu, Parts::cuda, Parts::nccl}};

const Parts& parts_of(TestPlace place) {
  return *std::find_if(std::begin(places), std::end(places),
                       [&](const Parts& parts) { return parts.place == place; });
}

std::unique_ptr<kernels::Backend> make_emulated(device::Device& device, SdpaCalls* sdpa) {
  return sdpa == nullptr ? make_emulated_backend(device)
                         : make_emulated_backend(device, make_plain_sdpa(*sdpa));
}

/// NCCL wants one for each rank.
int gpu_of(const Parts& parts, int rank) {
  return parts.transfers == Parts::nccl ? rank % std::max(1, device::num_cuda_devices()) : 0;
}

resources::ComputePlace make_place(const Parts& parts, int rank, kernels::MatmulKind products,
                                   SdpaCalls* sdpa) {
  resources::ComputePlace place;
  place.device = parts.device == Parts::host  ? device::make_host_device(1)
                 : parts.device == Parts::gpu ? device::make_cuda_device(gpu_of(parts, rank))
                                              : make_separate_device();
  place.backend = parts.device == Parts::host        ? kernels::make_cpu_backend(products)
                  : parts.kernels == Parts::cuda     ? kernels::make_cuda_backend(*place.device)
                  : parts.kernels == Parts::emulated ? make_emulated(*place.device, sdpa)
                                                     : make_separate_backend();
  place.stream = place.device->make_stream();
  return place;
}

void end_test(const std::string& words) {
  fmt::print(stderr, "{}\n", words);
  comm::MpiEnvironment::abort(1);
}

/// Ranks that agree on graphs. A GPU would do what it was given while its host waits for others.
class SettlingRanks : public comm::CommunicatorOver {
 public:
  SettlingRanks(std::unique_ptr<comm::Communicator> inner, device::Device& device)
      : CommunicatorOver(std::move(inner)), device_(device) {}
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    settle(device_);
    return inner().all_gather(mine);
  }
  std::unique_ptr<comm::Communicator> split(int color, int key) override {
    return std::make_unique<SettlingRanks>(inner().split(color, key), device_);
  }
  std::unique_ptr<comm::Communicator> split_by_host() override {
    return std::make_unique<SettlingRanks>(inner().split_by_host(), device_);
  }

 private:
  device::Device& device_;
};

/// Null: comm's own transfers do.
std::unique_ptr<comm::Communicator> tensor_group(const Parts& parts, comm::Communicator& comm,
                                                 const resources::ComputePlace& place,
                                                 SumsOf sums) {
  if (parts.transfers == Parts::own) return nullptr;
  auto host = comm.split(0, comm.rank());
  if (parts.transfers == Parts::staged)
    return comm::make_staged_communicator(std::move(host), *place.device, *place.stream);
  auto nccl = parts.device == Parts::gpu ? comm::make_nccl(*host, *place.device, end_test)
                                         : make_fake_nccl(comm.split(0, comm.rank()), sums);
  if (parts.device == Parts::separate)
    host = std::make_unique<SettlingRanks>(std::move(host), *place.device);
  return comm::make_nccl_communicator(std::move(host), std::move(nccl), *place.device,
                                      *place.stream, end_test);
}

}  // namespace

TestPlace place_of_tests() {
  const char* const text = std::getenv("PECIA_TEST_PLACE");
  if (text == nullptr) return TestPlace::host;
  for (const Parts& parts : places)
    if (std::string_view(text) == parts.name) return parts.place;
  fail<InputError>("PECIA_TEST_PLACE is {}", text);
}

std::map<int64_t, batch::Finished> run_requests(comm::Communicator& comm,
                                                const std::filesystem::path& folder,
                                                std::vector<batch::Request> requests,
                                                const ReplicaSettings& settings) {
  const model::ModelConfig whole = model::read_config(folder);
  const model::ModelConfig config =
      model::stage_of(whole, settings.stages,
                      parallel::stage_place(comm.rank(), comm.size(), settings.stages).stage);
  const Parts& parts = parts_of(settings.place);
  const bool as_stored =
      parts.kernels == Parts::cpu || settings.layout_invariant || settings.as_stored;
  const model::Weights weights(
      whole, io::Checkpoint(folder),
      as_stored && !settings.in_fp32 ? std::nullopt : std::optional(DType::fp32),
      execute::Replica::weight_cut(comm.rank(), settings.sp, settings.tp, settings.ep),
      (parts.kernels == Parts::cpu || settings.as_stored) && !settings.widened && !settings.in_fp32
          ? model::codes_kept(whole, settings.sp * settings.tp, settings.layout_invariant,
                              settings.ep, parts.kernels != Parts::cpu)
          : model::CodeUse{.kept = false},
      config.stage);
  const resources::ComputePlace place =
      make_place(parts, comm.rank(), settings.products, settings.sdpa);
  std::optional<model::DeviceWeights> there;
  if (parts.device != Parts::host)
    there.emplace(weights, *place.device, *place.stream, *place.backend, settings.quantize);
  job::Job job;
  job.generation.stop_token_ids = settings.stop_token_ids;
  job.generation.logprobs = settings.logprobs;
  job.generation.prompt_logprobs = settings.prompt_logprobs;
  job.batch.policy = settings.policy;
  job.kv.admission = settings.admission;
  if (settings.layout_invariant) job.reproducible = parallel::Reproducible::layout;
  resources::Resources resources;
  resources.sp = settings.sp, resources.tp = settings.tp, resources.ep = settings.ep;
  resources.pp = settings.stages;
  resources.cp = comm.size() / (settings.stages * settings.sp * settings.tp);
  resources.elastic = settings.elastic, resources.max_instances = resources.cp;
  resources.ring = settings.ring;
  resources.sparse = settings.sparse;
  resources.kv_dtype = settings.kv_dtype;
  resources.wire = settings.wire;
  resources.kv_tokens = settings.kv_tokens;
  resources.kv_recent_tokens = settings.kv_recent_tokens;
  resources.max_sequences = settings.max_sequences;
  resources.max_batch_tokens = settings.max_batch_tokens;
  if (config.recurrent) resources.states = (settings.drafts.on() ? 3 : 2) * settings.max_sequences;
  schedule::SchedulerLimits limits = schedule::limits_of(job, whole, resources);
  limits.max_positions = int64_t{1} << 20;  // the oracle has no limit either
  limits.modes = settings.modes;
  limits.normalizes_vectors = settings.normalizes_vectors;
  limits.vector_type = settings.vector_type;
  limits.ring_rates = settings.ring_rates;
  limits.levels_from = settings.levels_from;
  limits.block = settings.block;
  limits.forced_yields = settings.forced_yields;
  limits.drafts = settings.drafts;
  limits.parking_tokens = settings.parking_tokens;
  if (limits.kv_tokens == 0) {
    const schedule::Scheduler counting(limits);
    for (const batch::Request& request : requests)
      limits.kv_tokens += counting.tokens_needed(request) * 8;
  }
  const model::WeightViews& views =
      there ? *there : static_cast<const model::WeightViews&>(weights);
  report::Recorder recorder(settings.trace);
  auto tensors =
      tensor_group(parts, comm, place, settings.layout_invariant ? SumsOf::nobody : SumsOf::host);
  resources.kv_tokens = limits.kv_tokens;
  execute::Replica::Settings of_rank = execute::Replica::settings_of(job, resources);
  of_rank.places = settings.places;
  of_rank.parking = settings.parking;
  of_rank.link_costs = settings.link_costs;
  execute::Replica rank(comm, std::move(tensors), config, views,
                        {*place.device, *place.stream, *place.backend, recorder}, of_rank);

  // Every rank schedules the same; only the outcomes travel.
  schedule::Scheduler scheduler(limits);
  for (batch::Request& request : requests) scheduler.add(std::move(request), 0);
  std::map<int64_t, batch::Finished> results;
  const auto take = [&] {
    for (batch::Finished& finished : scheduler.take_finished())
      results[finished.row] = std::move(finished);
  };
  double now = 0;
  take();
  const int instance = rank.groups().cp_index, block = settings.sp * settings.tp;
  for (;;) {
    std::vector<schedule::Plan> plans;  // side by side; one plan where teams do not change
    while (settings.elastic || settings.stages > 1 || plans.empty()) {
      auto plan = scheduler.next(now);
      if (!plan) break;
      if (settings.change_plan) settings.change_plan(*plan);
      if (settings.on_plan) settings.on_plan(*plan);
      plans.push_back(std::move(*plan));
    }
    if (plans.empty()) break;
    std::vector<schedule::Outcome> mine;  // of elastic teams one, else by plan
    for (const schedule::Plan& plan : plans)
      if (!settings.elastic || plan.teams.front().index_of(instance))
        mine.push_back(rank.execute(plan));
    if (settings.elastic) mine.resize(1);
    if (parts.device == Parts::separate)
      settle(*place.device);  // a GPU would not stop while its host waits for others
    std::vector<std::vector<std::vector<std::byte>>> gathered;
    for (const schedule::Outcome& outcome : mine)
      gathered.push_back(comm.all_gather(to_bytes(outcome)));
    ++now;
    for (size_t i = 0; i < plans.size(); ++i) {
      std::vector<schedule::Outcome> outcomes;
      for (int from = 0; from < comm.size(); ++from)
        if (!settings.elastic || plans[i].teams.front().index_of(from / block))
          outcomes.push_back(
              from_bytes<schedule::Outcome>(gathered[settings.elastic ? 0 : i][from]));
      scheduler.commit(plans[i], outcomes, now);
    }
    take();
  }
  take();
  if (settings.most_recent_tokens != nullptr)
    *settings.most_recent_tokens = rank.attention().ledger().recent()->most_taken();
  if (settings.demand != nullptr) *settings.demand = scheduler.demand();
  if (settings.graphs != nullptr)
    *settings.graphs = dynamic_cast<device::GraphStream&>(*place.stream).graph_counts();
  return results;
}

namespace {

/// A result on its way to other ranks.
struct Travelling {
  batch::Finished finished;

  template <typename A>
  void visit(A& archive) {
    archive(finished.row);
    archive(finished.state);
    // By name of every member, so that a new one does not compile until it travels too.
    auto& [tokens, token_logprobs, top_tokens, top_logprobs, prompt_logprobs, prompt_top_tokens,
           prompt_top_logprobs, vectors, scores, score_logprobs, prompt_tokens, cached_tokens,
           truncated_tokens, finish_reason, text_bytes, error, queue_s, ttft_s, decode_s,
           prefill_compute_s, prefill_comm_s, decode_compute_s, decode_comm_s, mode, replica,
           yields, draft_accepted] = finished.result;
    const auto all = [&](auto&... members) { (archive(members), ...); };
    all(tokens, token_logprobs, top_tokens, top_logprobs, prompt_logprobs, prompt_top_tokens,
        prompt_top_logprobs, vectors, scores, score_logprobs, prompt_tokens, cached_tokens,
        truncated_tokens, finish_reason, text_bytes, error, queue_s, ttft_s, decode_s,
        prefill_compute_s, prefill_comm_s, decode_compute_s, decode_comm_s, mode, replica, yields,
        draft_accepted);
  }
};

struct TravellingResults {
  std::vector<Travelling> results;

  template <typename A>
  void visit(A& archive) {
    visit_all(archive, results);
  }
};

}  // namespace

std::map<int64_t, batch::Finished> run_one_by_one(comm::Communicator& world,
                                                  const std::filesystem::path& folder,
                                                  const std::vector<batch::Request>& requests,
                                                  const ReplicaSettings& settings) {
  const auto alone = comm::make_null_communicator();
  TravellingResults mine;
  for (size_t i = world.rank(); i < requests.size(); i += world.size())
    for (auto& [row, finished] : run_requests(*alone, folder, {requests[i]}, settings))
      mine.results.push_back({std::move(finished)});
  std::map<int64_t, batch::Finished> results;
  for (const auto& bytes : world.all_gather(to_bytes(mine)))
    for (Travelling& each : from_bytes<TravellingResults>(bytes).results)
      results[each.finished.row] = std::move(each.finished);
  return results;
}

std::map<int64_t, batch::Finished> run_alone(comm::Communicator& world,
                                             const std::filesystem::path& folder,
                                             const std::vector<batch::Request>& requests,
                                             const ReplicaSettings& settings) {
  TravellingResults all;
  if (world.rank() == 0)
    for (auto& [row, finished] :
         run_requests(*comm::make_null_communicator(), folder, requests, settings))
      all.results.push_back({std::move(finished)});
  std::map<int64_t, batch::Finished> results;
  for (Travelling& each : comm::of_first(world, std::move(all)).results)
    results[each.finished.row] = std::move(each.finished);
  return results;
}

std::vector<int32_t> random_tokens(int64_t count, int64_t vocab, uint64_t seed) {
  std::vector<int32_t> tokens(count);
  for (int64_t i = 0; i < count; ++i)
    tokens[i] = 5 + static_cast<int32_t>(uniform(seed, static_cast<uint64_t>(i)) *
                                         static_cast<double>(vocab - 5));
  return tokens;
}

}  // namespace pecia::test
