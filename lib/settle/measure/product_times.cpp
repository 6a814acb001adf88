// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/product_times.hpp"

#include <algorithm>
#include <limits>

#include "lib/ranks/comm/agree.hpp"
#include "lib/settle/measure/calibration.hpp"
#include "lib/settle/measure/rotating_product.hpp"

namespace pecia::measure {
namespace {

using kernels::MatmulKind;

constexpr int64_t depth = 1024;
constexpr int64_t most_rows = 512;
constexpr int64_t unit = RotatingProduct::unit;

struct Way {
  ProductTime time;
  kernels::Backend* backend;
  int64_t columns;
};

}  // namespace

std::vector<ProductTime> measure_products(const std::vector<MatmulKind>& kinds, DType weights,
                                          const resources::Threads& threads,
                                          comm::Communicator& world) {
  constexpr int64_t all_weights_bytes = 64 << 20, least_weights_bytes = 16 << 20;
  constexpr double product_s = 2e-3, enough_s = 0.3, slowest_flops = 2e9;
  constexpr int most_rounds = 5;
  const int64_t sharing = world.all_reduce_max(world.split_by_host()->size());
  const auto device = device::make_host_device(threads.count, threads.cpus);
  const auto stream = device->make_stream();
  report::Recorder recorder;
  std::vector<std::unique_ptr<kernels::Backend>> in_place, packed;
  comm::together(world, [&] {
    for (const MatmulKind kind : kinds) {
      in_place.push_back(kernels::make_cpu_backend({kind, kind, most_rows}));
      packed.push_back(kernels::make_cpu_backend({kind, kind, 0}));
    }
  });
  const auto compute = [&](kernels::Backend& backend) {
    return attention::Compute{*device, *stream, backend, recorder};
  };
  RotatingProduct product(compute(*packed.front()), most_rows, depth, weights,
                          std::max(least_weights_bytes, all_weights_bytes / sharing));
  const auto seconds_of = [&](const Way& way) {
    return seconds_of_all(world,
                          [&] { product.run(compute(*way.backend), way.time.rows, way.columns); });
  };

  constexpr int64_t probe_rows = 64;
  const Way probe{{kinds.front(), true, probe_rows, 0}, packed.front().get(), unit};
  seconds_of(probe);  // wakes threads
  const double flops = 2.0 * probe_rows * depth * unit / seconds_of(probe);
  if (flops < slowest_flops) return {};

  std::vector<Way> ways;
  const auto add = [&](MatmulKind kind, bool is_packed, int64_t rows, kernels::Backend& backend) {
    const auto fitting = static_cast<int64_t>(product_s * flops) / (2 * rows * depth) / unit * unit;
    constexpr double none = std::numeric_limits<double>::infinity();
    ways.push_back(
        {{kind, is_packed, rows, none}, &backend, std::clamp(fitting, unit, product.columns())});
  };
  for (const int64_t rows : rows_in_place)
    for (size_t kind = 0; kind < kinds.size(); ++kind)  // AMX reads in place by vectors
      if (kinds[kind] != MatmulKind::amx) add(kinds[kind], false, rows, *in_place[kind]);
  for (const int64_t rows : rows_packed)
    for (size_t kind = 0; kind < kinds.size(); ++kind) add(kinds[kind], true, rows, *packed[kind]);

  for (const Way& way : ways)  // packs the weights for each backend
    seconds_of({{way.time.products, way.time.packed, 1, 0}, way.backend, unit});
  double spent_s = 0;
  for (int round = 0; round < most_rounds && spent_s < enough_s; ++round)
    for (Way& way : ways) {
      const double seconds = seconds_of(way);
      way.time.seconds = std::min(way.time.seconds, seconds);
      spent_s += seconds;
    }
  std::vector<ProductTime> times;
  for (const Way& way : ways) times.push_back(way.time);
  return times;
}

}  // namespace pecia::measure
