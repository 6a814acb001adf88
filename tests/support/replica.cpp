#include "tests/support/replica.hpp"

#include <cstdlib>

#include "lib/comm/nccl_communicator.hpp"
#include "lib/comm/staged_communicator.hpp"
#include "lib/core/random.hpp"
#include "lib/model/device_weights.hpp"
#include "lib/runtime/worker.hpp"
#include "tests/support/fake_nccl.hpp"
#include "tests/support/separate_device.hpp"

namespace pecia::test {

runtime::Request greedy_request(int64_t row, std::vector<int32_t> tokens, int32_t new_tokens) {
  runtime::Turn turn;
  turn.row = row;
  turn.tokens = std::move(tokens);
  turn.max_new_tokens = new_tokens;
  runtime::Request request;
  request.turns.push_back(std::move(turn));
  return request;
}

namespace {

bool is_cuda(TestPlace place) {
  return place == TestPlace::cuda_staged || place == TestPlace::cuda_nccl;
}
bool is_separate(TestPlace place) {
  return place == TestPlace::separate_staged || place == TestPlace::separate_nccl;
}

std::unique_ptr<OwnedCompute> make_compute(TestPlace place) {
  if (is_separate(place)) return std::make_unique<SeparateCompute>();
  if (!is_cuda(place)) return std::make_unique<CpuCompute>();
  auto gpu = kernels::make_cuda_device(0);
  auto backend = kernels::make_cuda_backend(*gpu);
  return std::make_unique<OwnedCompute>(std::move(gpu), std::move(backend));
}

/// Null: comm's own transfers do.
std::unique_ptr<comm::Communicator> tensor_group(TestPlace place, comm::Communicator& comm,
                                                 OwnedCompute& compute) {
  if (place == TestPlace::host) return nullptr;
  auto host = comm.split(0, comm.rank());
  if (place == TestPlace::separate_staged || place == TestPlace::cuda_staged)
    return comm::make_staged_communicator(std::move(host), *compute.device, *compute.stream);
  auto nccl = place == TestPlace::cuda_nccl ? comm::make_nccl(*host, *compute.device)
                                            : make_fake_nccl(comm.split(0, comm.rank()));
  return comm::make_nccl_communicator(std::move(host), std::move(nccl), *compute.device,
                                      *compute.stream);
}

}  // namespace

TestPlace place_of_tests() {
  const char* const text = std::getenv("PECIA_TEST_PLACE");
  const std::string name = text != nullptr ? text : "host";
  const std::map<std::string, TestPlace> places = {{"host", TestPlace::host},
                                                   {"separate_staged", TestPlace::separate_staged},
                                                   {"separate_nccl", TestPlace::separate_nccl},
                                                   {"cuda_staged", TestPlace::cuda_staged},
                                                   {"cuda_nccl", TestPlace::cuda_nccl}};
  const auto place = places.find(name);
  if (place == places.end()) fail<InputError>("PECIA_TEST_PLACE is {}", name);
  return place->second;
}

std::map<int64_t, runtime::Finished> run_requests(comm::Communicator& comm,
                                                  const std::filesystem::path& folder,
                                                  std::vector<runtime::Request> requests,
                                                  const ReplicaSettings& settings) {
  const model::ModelConfig config = model::read_config(folder);
  const bool on_gpu = is_cuda(settings.place);
  const model::Weights weights(config, io::Checkpoint(folder),
                               on_gpu ? std::optional(DType::fp32) : std::nullopt,
                               runtime::Worker::weight_cut(comm.rank(), settings.tp));
  const auto compute = make_compute(settings.place);
  std::optional<model::DeviceWeights> there;
  if (settings.place != TestPlace::host) there.emplace(weights, *compute->device, *compute->stream);
  const auto tensors = tensor_group(settings.place, comm, *compute);

  runtime::SchedulerLimits limits;
  limits.ring_size = comm.size() / (settings.sp * settings.tp);
  limits.modes = settings.modes;
  limits.kv_tokens = settings.kv_tokens;
  limits.max_sequences = settings.max_sequences;
  limits.max_batch_tokens = settings.max_batch_tokens;
  limits.max_positions = int64_t{1} << 20;  // the oracle has no limit either
  limits.stop_token_ids = settings.stop_token_ids;
  limits.logprobs = settings.logprobs;
  limits.prompt_logprobs = settings.prompt_logprobs;
  limits.vocab = config.vocab;
  limits.policy = settings.policy;
  limits.ring = settings.ring;
  limits.ring_shape = {static_cast<double>(config.num_heads),
                       static_cast<double>(config.num_kv_heads),
                       static_cast<double>(size_of(settings.kv_dtype))};
  limits.ring_rates = settings.ring_rates;
  limits.layout_invariant = settings.layout_invariant;
  if (limits.kv_tokens == 0) {
    const runtime::Scheduler counting(limits);
    for (const runtime::Request& request : requests)
      limits.kv_tokens += counting.tokens_needed(request) * 8;
  }
  const model::WeightViews& views =
      there ? *there : static_cast<const model::WeightViews&>(weights);
  runtime::Worker worker(tensors ? *tensors : comm, config, views, *compute,
                         {.sp = settings.sp,
                          .tp = settings.tp,
                          .kv_dtype = settings.kv_dtype,
                          .kv_tokens = limits.kv_tokens,
                          .logprobs = settings.logprobs,
                          .prompt_logprobs = settings.prompt_logprobs,
                          .places = settings.places,
                          .layout_invariant = settings.layout_invariant});

  // Every rank schedules the same; only the outcomes travel.
  runtime::Scheduler scheduler(limits);
  for (runtime::Request& request : requests) scheduler.add(std::move(request), 0);
  std::map<int64_t, runtime::Finished> results;
  const auto take = [&] {
    for (runtime::Finished& finished : scheduler.take_finished())
      results[finished.row] = std::move(finished);
  };
  double now = 0;
  take();
  while (const auto plan = scheduler.next(now)) {
    if (settings.on_plan) settings.on_plan(*plan);
    const runtime::Outcome mine = worker.execute(*plan);
    if (is_separate(settings.place))
      settle(*compute->device);  // a GPU would not stop while its host waits for others
    std::vector<runtime::Outcome> outcomes;
    for (const auto& bytes : comm.all_gather(to_bytes(mine)))
      outcomes.push_back(from_bytes<runtime::Outcome>(bytes));
    scheduler.commit(*plan, outcomes, ++now);
    take();
  }
  take();
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
