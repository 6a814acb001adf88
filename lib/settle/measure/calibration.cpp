// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lib/base/core/build_info.hpp"
#include "lib/base/core/codes.hpp"
#include "lib/base/core/isa.hpp"
#include "lib/model/weights/layer_weights.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/ranks/comm/collectives.hpp"
#include "lib/ranks/comm/of_first.hpp"
#include "lib/ranks/comm/server_map.hpp"
#include "lib/settle/measure/product_rates.hpp"
#include "lib/settle/measure/rates_cache.hpp"

namespace pecia::measure {

double seconds_of_all(comm::Communicator& world, const std::function<void()>& work) {
  world.barrier();
  const double mine_ns = 1e9 * own_seconds(work);
  return 1e-9 *
         static_cast<double>(world.all_reduce_max(std::max<int64_t>(1, std::llround(mine_ns))));
}

AttentionShape attention_shape(const model::ModelConfig& config, const parallel::Degrees& degrees,
                               DType kv_dtype) {
  const auto [count, dim] = config.widest_heads();
  const int64_t kv_heads = parallel::kv_heads_of_rank(degrees, count);
  return {kv_heads * (config.num_heads / count), kv_heads, dim, kv_dtype, config.values_in_keys()};
}

double measure_attention_flops(comm::Communicator& world, const attention::Compute& compute,
                               const AttentionShape& shape, int64_t rows, int64_t keys) {
  constexpr double wanted_s = 0.02;
  auto buffers = compute.buffers(6);
  device::Buffer &q = buffers[0], &k = buffers[1], &v = buffers[2], &out = buffers[3],
                 &lse = buffers[4], &scales = buffers[5];
  const auto zeroed = [&](device::Buffer& buffer, int64_t bytes) {
    buffer.reserve(bytes);
    compute.device.zero(buffer.data(), bytes, compute.stream);
  };
  const int64_t q_elements = rows * shape.num_heads * shape.head_dim;
  const int64_t kv_bytes =
      keys * shape.num_kv_heads * shape.head_dim * static_cast<int64_t>(size_of(shape.kv_dtype));
  const int64_t scale_bytes = keys * shape.num_kv_heads * static_cast<int64_t>(sizeof(float));
  zeroed(q, q_elements * static_cast<int64_t>(sizeof(float)));
  zeroed(k, kv_bytes), zeroed(v, kv_bytes), zeroed(scales, scale_bytes);
  const float* const of_each = shape.kv_dtype == DType::fp8 ? scales.as<float>() : nullptr;
  const std::vector<int64_t> query_positions(rows, keys);
  const std::vector<kernels::AttentionItem> items = {{0, rows, 0, 1}};
  const std::vector<kernels::KeyRun> runs = {{0, keys * shape.head_dim, keys, 0}};
  const kernels::AttentionArgs args{
      .q = q.tensor(DType::fp32, {rows, shape.num_heads, shape.head_dim}),
      .query_positions = query_positions,
      .items = items,
      .runs = runs,
      .keys = {k.data(), shape.values_in_keys > 0 ? k.data() : v.data(), of_each, of_each},
      .kv_dtype = shape.kv_dtype,
      .num_kv_heads = shape.num_kv_heads,
      .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
      .window = 0,
      .out = out.tensor(DType::fp32, {rows, shape.num_heads, shape.value_dim()}),
      .lse = lse.tensor(DType::fp32, {rows, shape.num_heads})};
  const auto run = [&](int64_t calls) {
    for (int64_t call = 0; call < calls; ++call) compute.backend.attention(args, compute.stream);
    compute.stream.synchronize();
  };
  const auto seconds_of = [&](int64_t calls) { return seconds_of_all(world, [&] { run(calls); }); };
  run(1);  // wakes threads and touches pages
  const int64_t calls = 1 + static_cast<int64_t>(wanted_s / seconds_of(1));
  const int64_t multiplied = shape.num_heads * (shape.head_dim + shape.value_dim());
  return 2.0 * static_cast<double>(calls * rows * keys * multiplied) / seconds_of(calls);
}

namespace {

/// FLOP/s of a call that is small enough to end in milliseconds on a slow core, and large enough to
/// give several tiles to every thread, or to every multiprocessor of a GPU.
double attention_flops(comm::Communicator& world, const attention::Compute& compute,
                       const AttentionShape& shape) {
  const bool on_gpu = compute.device.info().is_gpu();
  return measure_attention_flops(world, compute, shape, on_gpu ? 4096 : 64, on_gpu ? 8192 : 512);
}

/// Starts a transfer in which this rank sends `sent` and receives equally many bytes.
using StartTransfer = std::function<std::unique_ptr<comm::Transfer>(std::span<const std::byte> sent,
                                                                    std::span<std::byte> received)>;

/// B/s that each rank sends while all do. It is the median of several transfers, each with as many
/// bytes as pass within about 10 ms, but more than a link passes in a burst. (On links shared with
/// other traffic the mean wavered by a fifth.)
double bandwidth_of(comm::Communicator& world, const attention::Compute& compute,
                    const StartTransfer& start) {
  constexpr int64_t small_bytes = int64_t{64} << 10;
  constexpr int64_t least_bytes = int64_t{2} << 20, large_bytes = int64_t{4} << 20;
  constexpr double wanted_s = 0.01;
  constexpr int repetitions = 5;
  const device::Buffer sent = compute.buffer(large_bytes), received = compute.buffer(large_bytes);
  compute.device.zero(sent.data(), large_bytes, compute.stream);
  compute.device.zero(received.data(), large_bytes, compute.stream);  // maps its pages
  const auto slowest_s = [&](int64_t bytes) {
    const auto size = static_cast<size_t>(bytes);
    return seconds_of_all(world, [&] {
      start({sent.as<std::byte>(), size}, {received.as<std::byte>(), size})->wait();
      compute.stream.synchronize();
    });
  };
  slowest_s(small_bytes);  // opens connections
  const double fits = static_cast<double>(small_bytes) * wanted_s / slowest_s(small_bytes);
  const auto bytes = static_cast<int64_t>(
      std::clamp(fits, static_cast<double>(least_bytes), static_cast<double>(large_bytes)));
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) seconds.push_back(slowest_s(bytes));
  std::nth_element(seconds.begin(), seconds.begin() + repetitions / 2, seconds.end());
  return static_cast<double>(bytes) / seconds[repetitions / 2];
}

/// Bandwidth of one message of each rank to the next of `ranks`, which has this rank.
double bandwidth_to_next(comm::Communicator& world, comm::Communicator& group,
                         const attention::Compute& compute, const std::vector<int>& ranks) {
  const auto size = std::ssize(ranks);
  const auto own = std::ranges::find(ranks, group.rank()) - ranks.begin();
  const int right = ranks.at((own + 1) % size), left = ranks.at((own + size - 1) % size);
  return bandwidth_of(world, compute, [&](auto sent, auto received) {
    return group.start_send_receive(sent, right, received, left);
  });
}

double ring_bandwidth(comm::Communicator& world, comm::Communicator& ring,
                      const attention::Compute& compute) {
  std::vector<int> ranks(ring.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return bandwidth_to_next(world, ring, compute, ranks);
}

/// Bandwidth of an equal message of each rank to every other.
double all_to_all_bandwidth(comm::Communicator& world, comm::Communicator& group,
                            const attention::Compute& compute) {
  const int others = group.size() - 1;
  if (others == 0) return ring_bandwidth(world, group, compute);
  return bandwidth_of(world, compute, [&](auto sent, auto received) {
    comm::Blocks blocks;
    const size_t bytes = sent.size() / others;
    size_t begin = 0;
    for (int rank = 0; rank < group.size(); ++rank) {
      const size_t count = rank == group.rank() ? 0 : bytes;
      blocks.send.push_back(sent.subspan(begin, count));
      blocks.receive.push_back(received.subspan(begin, count));
      begin += count;
    }
    return group.start_all_to_all(blocks);
  });
}

/// What rank 0 found in the cache.
struct Found {
  uint8_t there = 0;
  parallel::RingRates rates;

  template <typename A>
  void visit(A& archive) {
    archive(there), archive(rates.flops), archive(rates.bandwidth);
    archive(rates.all_to_all_bandwidth);
  }
};

}  // namespace

double exchange_seconds(comm::Communicator& world, comm::Communicator& group,
                        const attention::Compute& compute) {
  if (group.size() == 1) return 0;
  constexpr int runs = 50;
  const auto collectives =
      group.make_collectives(std::vector<int>(group.size(), 0), comm::SumOrder::any);
  device::Buffer buffer = compute.buffer();
  const TensorView few = buffer.tensor(DType::fp32, {group.size()});
  compute.device.zero(few.data(), buffer.bytes(), compute.stream);
  const auto exchange = [&] {
    collectives->start_all_reduce(few)->wait();
    compute.stream.synchronize();
  };
  exchange();
  const double seconds = seconds_of_all(world, [&] {
    for (int run = 0; run < runs; ++run) exchange();
  });
  return seconds / (2 * runs);  // each run is a scatter and a gather
}

parallel::RingRates measure_rates(comm::Communicator& world, comm::Communicator& ring,
                                  const attention::Compute& compute, const AttentionShape& shape) {
  const double flops = attention_flops(world, compute, shape);
  return {flops, ring_bandwidth(world, ring, compute), all_to_all_bandwidth(world, ring, compute)};
}

parallel::LinkCosts measure_link_costs(comm::Communicator& world, comm::Communicator& replica,
                                       const comm::RankLabels& labels,
                                       const attention::Compute& compute) {
  const auto index_in = [&](const std::vector<int>& ranks) {
    return std::ranges::find(ranks, replica.rank()) - ranks.begin();
  };
  const comm::ServerMap map(labels.servers), racks(labels.racks);
  // Ranks of a server, ranks with the same index on their servers, and in their racks.
  const std::vector<int>& inside = map.ranks(map.server(replica.rank()));
  std::vector<int> across, between;
  const bool has_racks = parallel::shape_of(labels.servers, labels.racks).has_racks();
  for (int server = 0; server < map.num_servers(); ++server) {
    const std::vector<int>& ranks = map.ranks(server);
    const bool counts = !has_racks || racks.server(ranks.front()) == racks.server(replica.rank());
    if (counts && index_in(inside) < std::ssize(ranks)) across.push_back(ranks[index_in(inside)]);
  }
  for (int rack = 0; has_racks && rack < racks.num_servers(); ++rack)
    between.push_back(racks.ranks(rack)[index_in(racks.ranks(racks.server(replica.rank())))]);
  return {
      .across_s_per_byte = 1 / bandwidth_to_next(world, replica, compute, across),
      .inside_s_per_byte = 1 / bandwidth_to_next(world, replica, compute, inside),
      .exchange_s = exchange_seconds(world, replica, compute),
      .racks_s_per_byte = has_racks ? 1 / bandwidth_to_next(world, replica, compute, between) : 0};
}

std::string rates_key(comm::Communicator& world, const comm::Communicator& ring,
                      const attention::Compute& compute, const AttentionShape& shape) {
  const auto host = world.split_by_host();
  const int64_t ranks_per_host = world.all_reduce_max(host->size());
  const auto hosts = std::llround(world.all_reduce_sum(host->rank() == 0 ? 1 : 0));
  const BuildInfo& build = build_info();
  const device::DeviceInfo& device = compute.device.info();
  return fmt::format(
      "{} {} {} · {} threads per rank · {} ranks per host · {} hosts · ring of {} · heads {}/{} of "
      "{}/{} {} · {} {}",
      device.name, cluster::cpu_facts().model, name_of(isa()), compute.stream.num_threads(),
      ranks_per_host, hosts, ring.size(), shape.num_heads, shape.num_kv_heads, shape.head_dim,
      shape.value_dim(), name_of(shape.kv_dtype), build.version, build.commit);
}

parallel::RingRates calibrate(comm::Communicator& world, comm::Communicator& ring,
                              const attention::Compute& compute, const AttentionShape& shape,
                              spdlog::logger& log) {
  const std::string key = rates_key(world, ring, compute, shape);
  const auto path = world.rank() == 0 ? rates_cache_path() : std::nullopt;
  CachedRates cached;
  Found found;
  if (path) {
    cached = read_rates(*path);
    if (!cached.damage.empty())
      log.warn("{}: not used, rates are measured again: {}", path->string(), cached.damage);
    if (const auto kept = cached.by_key.find(key); kept != cached.by_key.end())
      found = {1, kept->second};
  }
  found = comm::of_first(world, found);
  if (found.there != 0) return found.rates;

  const parallel::RingRates rates = measure_rates(world, ring, compute, shape);
  if (!path) return rates;
  cached.by_key[key] = rates;
  try {
    write_rates(*path, cached.by_key);
  } catch (const SystemError& error) {
    log.warn("the measured rates are not kept for the next run: {}", error.what());
  }
  return rates;
}

parallel::ShiftInputs measure_shift_inputs(const model::ModelConfig& config, DType weights,
                                           const model::CodeUse& codes, int sp, int tp,
                                           parallel::SentPerToken sent, comm::Communicator& world,
                                           comm::Communicator& block,
                                           const attention::Compute& compute) {
  const Stopwatch all = [&](const std::function<void()>& work) {
    return seconds_of_all(world, work);
  };
  // A step is of few tokens, so it reads little more of the experts than it multiplies.
  const int64_t vocab = config.hidden * config.vocab;
  const int64_t elements = static_cast<int64_t>(config.flops_per_token() / 2) - vocab;
  const double element_bytes =
      static_cast<double>(size_of(weights)) / static_cast<double>(numbers_of(weights));
  return {.layer_elements = elements / config.layers,
          .vocab_elements = vocab,
          .weight_bytes =
              element_bytes + static_cast<double>(active_bytes_by_codes(config, weights, codes)) /
                                  static_cast<double>(elements),
          .vocab_bytes = element_bytes,
          .layers = config.layers,
          .sp = sp,
          .tp = tp,
          .sent = sent,
          .flops = measure_product_flops(compute, weights, all),
          .read_bandwidth = measure_product_bandwidth(compute, weights, all),
          .link_bandwidth = ring_bandwidth(world, block, compute),
          .exchange_s = exchange_seconds(world, block, compute)};
}

}  // namespace pecia::measure
