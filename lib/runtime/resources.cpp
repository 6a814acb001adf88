#include "lib/runtime/resources.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "lib/comm/machine.hpp"
#include "lib/model/model.hpp"
#include "lib/parallel/virtual_ranks.hpp"
#include "lib/runtime/layout_rules.hpp"

namespace pecia::runtime {

int threads_per_rank(comm::Communicator& world) {
  const std::vector<int> mine = comm::cpu_facts().cores;
  const auto host = world.split_by_host();
  std::set<int> shared;
  int64_t sum = 0;
  for (const auto& bytes : host->all_gather(std::as_bytes(std::span(mine)))) {
    const auto* cores = reinterpret_cast<const int*>(bytes.data());
    const size_t count = bytes.size() / sizeof(int);
    shared.insert(cores, cores + count);
    sum += static_cast<int64_t>(count);
  }
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    const int threads = std::atoi(text);
    if (threads < 1)
      fail<InputError>("OMP_NUM_THREADS is '{}'; it must be a number from 1 on", text);
    return threads;
  }
  const bool apart = sum == static_cast<int64_t>(shared.size());
  const auto threads = apart ? mine.size() : shared.size() / static_cast<size_t>(host->size());
  return std::max(1, static_cast<int>(threads));
}

void resolve_grid(const Job& job, int num_ranks, Resources& resources) {
  resources.dp = job.parallel.dp;
  resources.cp = job.parallel.cp.value_or(num_ranks / std::max(1, resources.dp));
  if (int64_t{resources.dp} * resources.cp != num_ranks)
    fail<InputError>(
        "parallel.dp {} × parallel.cp {} is not the number of ranks, {}: set cp: auto and a dp "
        "that divides {}, or start {} ranks",
        resources.dp, resources.cp, num_ranks, num_ranks,
        std::max<int64_t>(1, int64_t{resources.dp} * resources.cp));
  check_layout_ring(job, resources.cp);
}

DType dtype_of(Precision precision, std::string_view key) {
  switch (precision) {
    case Precision::fp32:
      return DType::fp32;
    case Precision::bf16:
      return DType::bf16;
    case Precision::fp16:
      return DType::fp16;
    case Precision::fp8:
    case Precision::int8:
      break;
  }
  fail<Unsupported>("{} {} is not in this version; use auto, fp32, bf16 or fp16", key,
                    name_of(precision));
}

int64_t resolve_batch_tokens(const Job& job, const model::ModelConfig& config, int cp) {
  if (job.batch.max_batch_tokens) return *job.batch.max_batch_tokens;
  const int64_t rows = (int64_t{128} << 20) / model::Model::activation_bytes_per_row(config);
  const int ranks = job.reproducible == Reproducible::layout ? 1 : cp;  // the cuts show in the bits
  return std::clamp<int64_t>(rows / 256 * 256, 256, 4096) * ranks;
}

int64_t resolve_kv_tokens(const Job& job, const model::ModelConfig& config, const Inputs* inputs,
                          const Resources& resources, comm::Communicator& world) {
  const auto host = world.split_by_host();
  const int64_t memory = job.kv.memory.value_or(static_cast<int64_t>(
      0.8 * static_cast<double>(comm::memory_facts().available_bytes) / host->size()));
  const int64_t per_token = config.kv_bytes_per_token(resources.kv_dtype);
  const int64_t room = -world.all_reduce_max(-(memory / per_token));  // the least of all ranks
  if (room < 1)
    fail<InputError>(
        "kv.memory of {} bytes on a rank holds no token of {} bytes; raise it, or free memory",
        memory, per_token);
  // What the largest requests of a full batch hold together.
  const int dealt_to =
      job.reproducible == Reproducible::layout ? parallel::layout_ranks : resources.cp;
  int64_t most = 1;
  if (inputs != nullptr) {
    std::vector<int64_t> wanted;
    for (const InputRequest& request : inputs->requests())
      wanted.push_back(dealt_to / resources.cp *
                       inputs->max_slots(request, dealt_to, resources.max_batch_tokens));
    std::sort(wanted.begin(), wanted.end(), std::greater<>());
    for (size_t i = 0; i < wanted.size() && static_cast<int64_t>(i) < resources.max_sequences; ++i)
      if (__builtin_add_overflow(most, wanted[i], &most)) most = room;
  }
  return std::min(room, world.all_reduce_max(most));
}

void resolve_memory(const Job& job, const model::ModelConfig& config, const model::Weights& weights,
                    const Inputs* inputs, Resources& resources, comm::Communicator& world) {
  const DType stored = weights.layers.front().q.parts.front().weight.dtype();
  resources.kv_dtype = job.kv.dtype ? dtype_of(*job.kv.dtype, "kv.dtype") : stored;
  resources.max_sequences = job.batch.max_sequences.value_or(256);
  resources.max_batch_tokens = resolve_batch_tokens(job, config, resources.cp);
  resources.kv_tokens = resolve_kv_tokens(job, config, inputs, resources, world);
}

}  // namespace pecia::runtime
