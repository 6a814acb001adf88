#include "lib/runtime/measured.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "lib/comm/collectives.hpp"
#include "lib/parallel/shift_rule.hpp"
#include "lib/runtime/calibration.hpp"
#include "lib/runtime/peak.hpp"

namespace pecia::runtime {
namespace {

using Json = nlohmann::ordered_json;

Json degrees_of(const Resources& resources) {
  return {{"cp", resources.cp}, {"sp", resources.sp}, {"tp", resources.tp}};
}

/// Seconds of one exchange of a few bytes among the ranks of `group`.
double exchange_seconds(comm::Communicator& group) {
  constexpr int runs = 50;
  comm::Collectives collectives(group, std::vector<int>(group.size(), 0));
  std::vector<float> few(static_cast<size_t>(group.size()), 1.0f);
  collectives.start_all_reduce(few)->wait();
  const auto begin = std::chrono::steady_clock::now();
  for (int run = 0; run < runs; ++run) collectives.start_all_reduce(few)->wait();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  return elapsed.count() / (2 * runs);  // a scatter and a gather
}

/// The least of all ranks.
double slowest(comm::Communicator& world, double rate) {
  double least = rate;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&rate, 1)))) {
    double other = 0;
    std::memcpy(&other, bytes.data(), sizeof other);
    least = std::min(least, other);
  }
  return least;
}

int64_t measured_threshold(const model::ModelConfig& config, const Resources& resources,
                           DType weights, comm::Communicator& world, Worker& worker,
                           kernels::Backend& backend, device::Stream& stream,
                           const AttentionShape& shape) {
  comm::Communicator& block = *worker.groups().block;
  world.barrier();
  parallel::ShiftInputs inputs{.shape = {config.hidden, config.ffn, config.num_heads,
                                         config.num_kv_heads, config.head_dim, size_of(weights)},
                               .layers = config.layers,
                               .sp = resources.sp,
                               .tp = resources.tp};
  inputs.flops = slowest(world, measure_peak_flops(backend, stream));
  inputs.read_bandwidth = slowest(world, measure_read_bandwidth(backend, stream, weights));
  inputs.link_bandwidth = measure_rates(world, block, backend, stream, shape).bandwidth;
  inputs.exchange_s = -slowest(world, -exchange_seconds(block));
  return shift_threshold(inputs, resources.max_batch_tokens);
}

}  // namespace

std::string to_json(const Measured& measured, const Resources& resources) {
  Json json{{"degrees", degrees_of(resources)},
            {"ring_flops", measured.ring.flops},
            {"ring_bandwidth", measured.ring.bandwidth}};
  if (measured.shift_threshold) json["shift_threshold"] = *measured.shift_threshold;
  return json.dump();
}

std::optional<Measured> parse_measured(const std::string& text, const Resources& resources) try {
  const Json json = Json::parse(text);
  if (json.at("degrees") != degrees_of(resources)) return {};
  Measured measured;
  measured.ring = {json.at("ring_flops").get<double>(), json.at("ring_bandwidth").get<double>()};
  if (json.contains("shift_threshold"))
    measured.shift_threshold = json.at("shift_threshold").get<int64_t>();
  return measured;
} catch (const nlohmann::json::exception&) {
  return {};
}

Measured measure(const Job& job, const model::ModelConfig& config, const Resources& resources,
                 comm::Communicator& world, Worker& worker, kernels::Backend& backend,
                 device::Stream& stream, spdlog::logger& log) {
  const context::KvShape& cache = worker.cache().shape();
  const AttentionShape shape{cache.num_kv_heads * (config.num_heads / config.num_kv_heads),
                             cache.num_kv_heads, cache.head_dim, cache.dtype};
  Measured measured;
  if (resources.cp > 1 && !resources.ring)
    measured.ring = calibrate(world, *worker.groups().ring, backend, stream, shape, log);
  if (resources.decode == DecodeMode::shift) {
    measured.shift_threshold = resources.shift_threshold;
    if (!measured.shift_threshold) {
      const DType weights = job.model.dtype ? dtype_of(*job.model.dtype, "model.dtype")
                                            : config.stored_dtype.value_or(DType::fp32);
      measured.shift_threshold =
          measured_threshold(config, resources, weights, world, worker, backend, stream, shape);
    }
  }
  return measured;
}

}  // namespace pecia::runtime
