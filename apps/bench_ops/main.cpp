// SPDX-License-Identifier: Apache-2.0
/// Times every op of a backend at the shapes of real models, and compares it with what the machine
/// can do. The floor of an op is the longer of flops / (the FLOP/s of a large product) and bytes /
/// (bandwidth), both measured first. The product is BLAS's, except for products of bf16 and on a
/// GPU, where it is the backend's own. Inputs are hot: those that fit the caches may run faster
/// than memory allows.

#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/bench_ops/blas_core.hpp"
#include "apps/bench_ops/cases.hpp"
#include "apps/bench_ops/earlier_times.hpp"
#include "apps/bench_ops/floors.hpp"
#include "apps/bench_ops/timing.hpp"
#include "apps/command_line/options.hpp"
#include "kernels/phantom/phantom.hpp"
#include "lib/base/core/build_info.hpp"
#include "lib/base/core/isa.hpp"
#include "lib/base/core/json.hpp"
#include "lib/base/device/cuda_device.hpp"
#include "lib/base/device/phantom_device.hpp"
#include "lib/simulation/calibration.hpp"

namespace pecia::bench {
namespace {

struct Options {
  int threads = omp_get_max_threads();
  int runs = 7;
  std::string op;
  std::string backend = "cpu";
  std::string compute = "fp32";
  bool json = false;
  std::string compare;
};

/// The subject of a measurement: a device, its stream, a backend, and the limits of the machine.
struct Bench {
  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Stream> stream;
  std::unique_ptr<kernels::Backend> backend;
  /// Other ways to attention, by what they add to the op's name; none on a CPU.
  std::vector<std::pair<std::string, std::unique_ptr<kernels::Backend>>> other_attention;
  std::string machine;
  Floors floors;
  std::string product_by = "the backend";  ///< what runs the floor's product

  Place place() const { return {*backend, *device, *stream}; }
};

/// What --compute asks for: a name, or the last kind that this CPU has.
kernels::MatmulKind products_of(const Options& options) {
  auto best = kernels::MatmulKind::fp32;
  for (const kernels::MatmulKind products : kernels::all_matmul_kinds)
    if (name_of(products) == options.compute ||
        (options.compute == "auto" && kernels::why_no_products(products).empty()))
      best = products;
  return best;
}

bool of_bf16(const Options& options) {
  return products_of(options) != kernels::MatmulKind::fp32;
}

Bench make_bench(const Options& options) {
  Bench bench;
  const bool on_gpu = options.backend == "cuda";
  bench.device = on_gpu ? device::make_cuda_device(0) : device::make_host_device(options.threads);
  bench.stream = bench.device->make_stream();
  if (on_gpu) {
    bench.backend = kernels::make_cuda_backend(*bench.device);
    const auto add = [&](const char* name, kernels::AttentionBy by) {
      bench.other_attention.emplace_back(name, kernels::make_cuda_backend(*bench.device, by));
    };
    add("own", kernels::AttentionBy::own_kernels);
    add("static", kernels::AttentionBy::static_graphs);
    bench.machine = bench.device->info().name;
    bench.floors = measure_gpu_floors(bench.place(), options.runs);
  } else {
    bench.backend = options.backend == "cpu" ? kernels::make_cpu_backend(products_of(options))
                                             : kernels::make_reference_backend();
    bench.machine = fmt::format("{} threads, {}", options.threads, name_of(isa()));
    bench.floors = measure_floors(options.threads, options.runs);
    if (of_bf16(options))
      bench.floors.flops = measure_product(bench.place(), options.runs);
    else
      bench.product_by = blas_name();
  }
  return bench;
}

/// A case with its device and backend.
struct Measurement {
  Case one;
  Place place;
};

void print_floors(const Options& options, const Bench& bench) {
  if (options.json) {
    nlohmann::json line{{"machine", bench.machine},
                        {"backend", options.backend},
                        {"commit", build_info().commit},
                        {"attention_library", bench.backend->attention_library()},
                        {"product_flops", bench.floors.flops},
                        {"product_by", bench.product_by},
                        {"bandwidth", bench.floors.bandwidth}};
    if (options.backend == "cpu") line["compute"] = std::string(name_of(products_of(options)));
    std::puts(json_text(line).c_str());
  } else {
    fmt::print("{}: product {:.1f} GFLOP/s by {}, memory {:.1f} GB/s{}{}\n", bench.machine,
               bench.floors.flops * 1e-9, bench.product_by, bench.floors.bandwidth * 1e-9,
               bench.other_attention.empty() ? "" : ", attention by ",
               bench.backend->attention_library());
  }
}

/// All measurements in order. On a GPU attention is also measured with our own kernels, and by the
/// library's graphs of static shape.
std::vector<Measurement> measurements(std::vector<Case> cases, const Bench& bench) {
  std::vector<Measurement> found;
  for (Case& one : cases) {
    found.push_back({one, bench.place()});
    if (one.op != "attention") continue;
    for (const auto& [name, backend] : bench.other_attention) {
      one.op = fmt::format("attention ({})", name);
      found.push_back({one, {*backend, *bench.device, *bench.stream}});
    }
  }
  return found;
}

/// The ops that the case calls, as pecia plan --calibrate reads them.
nlohmann::json work_of(const Case& one, const kernels::Backend& backend) {
  device::PhantomDevice device({"phantom", 0, 1, "", ""}, std::numeric_limits<int64_t>::max());
  const auto stream = device.make_stream();
  auto work = nlohmann::json::array();
  const auto phantom = kernels::make_phantom_backend(
      [&](const kernels::OpWork& op) { work.push_back(simulation::work_json(op)); },
      kernels::traits_of(backend));
  one.make({*phantom, device, *stream})();
  return work;
}

void measure(const Measurement& measurement, const Options& options, const Bench& bench,
             const EarlierTimes* earlier) {
  const auto& [one, place] = measurement;
  const Floors& floors = bench.floors;
  const auto times = sorted_seconds(options.runs, place.device, place.stream, one.make(place));
  const double seconds = times[times.size() / 2];
  const double floor = std::max(one.flops / floors.flops, one.bytes / floors.bandwidth);
  const double before = earlier ? earlier->median_s(one.op, one.shape) : 0;
  if (options.json) {
    nlohmann::json line{{"op", one.op},
                        {"shape", one.shape},
                        {"median_s", seconds},
                        {"best_s", times.front()},
                        {"flops", one.flops},
                        {"bytes", one.bytes},
                        {"share_of_floor", floor / seconds},
                        {"work", work_of(one, place.backend)}};
    if (one.row_invariant) line["row_invariant"] = true;
    if (earlier) line.update({{"earlier_s", before}, {"ratio", seconds / before}});
    std::puts(json_text(line).c_str());
    return;
  }
  const bool computes = one.flops / floors.flops >= one.bytes / floors.bandwidth;
  fmt::print("{:17} {:52} {:9.3f} ms {:8.1f} {} {:4.0f} % of floor (best run {:.0f} %){}\n", one.op,
             one.shape, seconds * 1e3, (computes ? one.flops : one.bytes) / seconds * 1e-9,
             computes ? "GFLOP/s" : "GB/s   ", 100 * floor / seconds, 100 * floor / times.front(),
             earlier ? fmt::format(", before {:.3f} ms, now / before {:.2f}", before * 1e3,
                                   seconds / before)
                     : "");
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Times the ops of a backend");
  command_line::add_option(app, {.name = "--threads",
                                 .into = &options.threads,
                                 .help = "Threads per op",
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--runs",
                                 .into = &options.runs,
                                 .help = "Timed runs of each op; the median counts",
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--op", .into = &options.op, .help = "Only this op"});
  command_line::add_option(app, {.name = "--backend",
                                 .into = &options.backend,
                                 .help = "",
                                 .among = {"cpu", "cuda", "reference"}});
  command_line::add_option(app, {.name = "--compute",
                                 .into = &options.compute,
                                 .help = "Products of the CPU with weights of bf16",
                                 .show_default = true,
                                 .among = {"auto", "fp32", "bf16", "amx"}});
  command_line::add_option(
      app, {.name = "--json", .into = &options.json, .help = "One JSON object a line"});
  command_line::add_option(
      app, {.name = "--compare",
            .into = &options.compare,
            .help = "Also the times in this file, which --json gave before, and now / before",
            .exists = command_line::Exists::file});
  CLI11_PARSE(app, argc, argv);

  std::vector<Case> cases = options.backend == "cuda" ? large_cases() : all_cases();
  if (!options.op.empty())
    std::erase_if(cases, [&](const Case& one) { return one.op != options.op; });
  if (cases.empty()) fail<InputError>("there is no op named '{}'", options.op);

  std::optional<EarlierTimes> earlier;
  if (!options.compare.empty()) earlier.emplace(options.compare);
  const Bench bench = make_bench(options);
  const std::vector<Measurement> all = measurements(std::move(cases), bench);
  if (earlier) {
    std::vector<EarlierTimes::Name> names;
    for (const Measurement& each : all) names.emplace_back(each.one.op, each.one.shape);
    earlier->require(names);
  }
  print_floors(options, bench);
  if (earlier && !options.json)
    fmt::print("compared with {}: {}\n", options.compare, earlier->origin());
  for (const Measurement& each : all) measure(each, options, bench, earlier ? &*earlier : nullptr);
  return 0;
}

}  // namespace
}  // namespace pecia::bench

int main(int argc, char** argv) try {
  pecia::bench::choose_blas_core(argv);
  return pecia::bench::run(argc, argv);
} catch (const pecia::Error& error) {
  fmt::print(stderr, "bench_ops: {}\n", error.what());
  return dynamic_cast<const pecia::InputError*>(&error) ? 2 : 1;
}
