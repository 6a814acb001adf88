// SPDX-License-Identifier: Apache-2.0
/// Times every op of a backend at the shapes of real models, and compares it with what the machine
/// can do. The floor of an op is the longer of flops / (the FLOP/s of a large product) and bytes /
/// (bandwidth), both measured first. The product is BLAS's, except for products of bf16 and on a
/// GPU, where it is the backend's own. Inputs are hot: those that fit the caches may run faster
/// than memory allows.

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "apps/bench/commands.hpp"
#include "apps/bench/ops/blas.hpp"
#include "apps/bench/ops/cases.hpp"
#include "apps/bench/ops/earlier_times.hpp"
#include "apps/bench/ops/floors.hpp"
#include "apps/bench/ops/neighbours.hpp"
#include "apps/bench/ops/timing.hpp"
#include "apps/bench/support/floors.hpp"
#include "apps/bench/support/results.hpp"
#include "kernels/phantom/phantom.hpp"
#include "lib/base/core/build_info.hpp"
#include "lib/base/core/isa.hpp"
#include "lib/base/device/cuda_device.hpp"
#include "lib/base/device/phantom_device.hpp"
#include "lib/simulation/calibration.hpp"

namespace pecia::bench {
namespace ops {
namespace {

struct OpsOptions {
  std::string op, backend = "cpu", compute = "fp32";
  std::filesystem::path compare;
  bool neighbours = false;
};

/// Another way to some ops, and what it adds to their names.
struct OtherWay {
  std::string name;
  std::set<std::string> ops;
  std::unique_ptr<kernels::Backend> backend;
};

/// The subject of a measurement: a device, its stream, a backend, and the limits of the machine.
struct Subject {
  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Stream> stream;
  std::unique_ptr<kernels::Backend> backend;
  std::vector<OtherWay> other_ways;  ///< none on a CPU
  std::string machine;
  OpFloors floors;
  std::string product_by = "the backend";  ///< what runs the floor's product

  Place place() const { return {*backend, *device, *stream}; }
};

/// What --compute asks for: a name, or the last kind that this CPU has.
kernels::MatmulKind products_of(const OpsOptions& options) {
  auto best = kernels::MatmulKind::fp32;
  for (const kernels::MatmulKind products : kernels::all_matmul_kinds)
    if (name_of(products) == options.compute ||
        (options.compute == "auto" && kernels::why_no_products(products).empty()))
      best = products;
  return best;
}

bool of_bf16(const OpsOptions& options) {
  return products_of(options) != kernels::MatmulKind::fp32;
}

Subject make_subject(const Session& session, const OpsOptions& options) {
  const auto [runs, threads] = std::pair(session.options.runs, session.options.threads);
  Subject subject;
  const bool on_gpu = options.backend == "cuda";
  subject.device = on_gpu ? device::make_cuda_device(0) : device::make_host_device(threads);
  subject.stream = subject.device->make_stream();
  if (on_gpu) {
    subject.backend = kernels::make_cuda_backend(*subject.device);
    subject.other_ways.push_back(
        {"own",
         {"attention", "experts"},
         kernels::make_cuda_backend(*subject.device, kernels::AttentionBy::own_kernels,
                                    kernels::ExpertsBy::own_kernels)});
    subject.other_ways.push_back(
        {"static",
         {"attention"},
         kernels::make_cuda_backend(*subject.device, kernels::AttentionBy::static_graphs)});
    subject.machine = subject.device->info().name;
    subject.floors = measure_gpu_floors(subject.place(), runs);
    return subject;
  }
  subject.backend = options.backend == "cpu" ? kernels::make_cpu_backend(products_of(options))
                                             : kernels::make_reference_backend();
  subject.machine = fmt::format("{} threads, {}", threads, name_of(isa()));
  subject.floors.bandwidth = read_bandwidth(*subject.stream);
  if (of_bf16(options)) {
    subject.floors.flops = measure_product(subject.place(), runs);
  } else {
    const Blas blas(threads);
    subject.floors.flops = blas.sgemm_flops(runs);
    subject.product_by = blas.name();
  }
  return subject;
}

/// A case with its device and backend.
struct Measurement {
  Case one;
  Place place;
};

void write_floors(const Results& results, const OpsOptions& options, const Subject& subject) {
  std::string line_of_libraries;
  if (options.backend == "cuda")
    line_of_libraries =
        fmt::format(", attention by {}, experts by {}", subject.backend->attention_library(),
                    subject.backend->expert_library());
  results.line(fmt::format("{}: product {:.1f} GFLOP/s by {}, memory {:.1f} GB/s{}",
                           subject.machine, subject.floors.flops * 1e-9, subject.product_by,
                           subject.floors.bandwidth * 1e-9, line_of_libraries));
  nlohmann::ordered_json line{{"machine", subject.machine},
                              {"backend", options.backend},
                              {"commit", build_info().commit},
                              {"attention_library", subject.backend->attention_library()},
                              {"expert_library", subject.backend->expert_library()},
                              {"product_flops", subject.floors.flops},
                              {"product_by", subject.product_by},
                              {"bandwidth", subject.floors.bandwidth}};
  if (options.backend == "cpu") line["compute"] = std::string(name_of(products_of(options)));
  results.write(line);
}

/// All measurements in order, each beside the other ways to its op.
std::vector<Measurement> measurements(const std::vector<Case>& cases, const Subject& subject) {
  std::vector<Measurement> found;
  for (const Case& one : cases) {
    found.push_back({one, subject.place()});
    for (const OtherWay& way : subject.other_ways) {
      if (!way.ops.contains(one.op)) continue;
      found.push_back({one, {*way.backend, *subject.device, *subject.stream}});
      found.back().one.op = fmt::format("{} ({})", one.op, way.name);
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

void measure(const Measurement& measurement, const Session& session, const OpFloors& floors,
             const EarlierTimes* earlier, const Results& results) {
  const auto& [one, place] = measurement;
  const auto times =
      sorted_seconds(session.options.runs, place.device, place.stream, one.make(place));
  const double seconds = spread(times).median;
  const double flops_s = one.flops / floors.flops, bytes_s = one.bytes / floors.bandwidth;
  const double floor = std::max(flops_s, bytes_s);
  const bool computes = flops_s >= bytes_s;
  std::string cells = fmt::format("{}|{}|{:.3f}|{}|{:.0f}|{:.0f}", one.op, one.shape, seconds * 1e3,
                                  computes ? fmt::format("{:.1f}|", one.flops / seconds * 1e-9)
                                           : fmt::format("|{:.1f}", one.bytes / seconds * 1e-9),
                                  100 * floor / seconds, 100 * floor / times.front());
  nlohmann::ordered_json line{{"op", one.op},
                              {"shape", one.shape},
                              {"median_s", seconds},
                              {"best_s", times.front()},
                              {"flops", one.flops},
                              {"bytes", one.bytes},
                              {"share_of_floor", floor / seconds},
                              {"work", work_of(one, place.backend)}};
  if (one.row_invariant) line["row_invariant"] = true;
  if (earlier != nullptr) {
    const double before = earlier->median_s(one.op, one.shape);
    cells += fmt::format("|{:.3f}|{:.2f}", before * 1e3, seconds / before);
    line.update({{"earlier_s", before}, {"ratio", seconds / before}});
  }
  results.cells(cells);
  results.write(line);
}

void tell_of_neighbours(const std::vector<Case>& cases, const Place& place, int runs,
                        Results& results) {
  results.columns(fmt::format("{:>24}|value|neighbour|{:>52}|{:>10}|{:>10}|ratio|faster",
                              "constant", "shape", "ms", "with it"));
  try_neighbours(cases, place, runs, [&](const NeighbourTimes& times) {
    const double ratio = times.neighbour_s / times.value_s;
    results.row("{}|{}|{}|{}|{:.3f}|{:.3f}|{:.2f}|{}", times.constant, times.value, times.neighbour,
                times.one.shape, times.value_s * 1e3, times.neighbour_s * 1e3, ratio,
                times.faster ? "faster" : "");
    results.write({{"constant", times.constant},
                   {"value", times.value},
                   {"neighbour", times.neighbour},
                   {"op", times.one.op},
                   {"shape", times.one.shape},
                   {"value_s", times.value_s},
                   {"neighbour_s", times.neighbour_s},
                   {"ratio", ratio},
                   {"faster", times.faster}});
  });
}

void run_ops(const Session& session, const OpsOptions& options) {
  session.require_one_rank("it times one rank's ops");
  std::vector<Case> cases = options.backend == "cuda" ? large_cases() : all_cases();
  if (!options.op.empty())
    std::erase_if(cases, [&](const Case& one) { return one.op != options.op; });
  if (cases.empty()) fail<InputError>("there is no op named '{}'", options.op);

  if (options.neighbours && (options.backend != "cpu" || !options.compare.empty()))
    fail<InputError>("--neighbours tries constants of the CPU backend, without --compare");
  std::optional<EarlierTimes> earlier;
  if (!options.compare.empty()) earlier.emplace(options.compare);
  const Subject subject = make_subject(session, options);
  const std::vector<Measurement> all = measurements(cases, subject);
  if (earlier) {
    std::vector<EarlierTimes::Name> names;
    for (const Measurement& each : all) names.emplace_back(each.one.op, each.one.shape);
    earlier->require(names);
  }
  Results results(session);
  write_floors(results, options, subject);
  if (options.neighbours) {
    std::vector<Case> of_all;
    for (const Measurement& each : all) of_all.push_back(each.one);
    return tell_of_neighbours(of_all, subject.place(), session.options.runs, results);
  }
  if (earlier)
    results.line(fmt::format("compared with {}: {}", options.compare.string(), earlier->origin()));
  results.columns(fmt::format("{:>17}|{:>52}|ms|GFLOP/s|GB/s|% of floor|best run %{}", "op",
                              "shape", earlier ? "|before ms|now / before" : ""));
  for (const Measurement& each : all)
    measure(each, session, subject.floors, earlier ? &*earlier : nullptr, results);
}

}  // namespace
}  // namespace ops

void add_ops(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<ops::OpsOptions>();
  Command command(app, chosen, "ops", "Times the ops of a backend",
                  [options](const Session& session) { ops::run_ops(session, *options); },
                  {.runs = 7});
  command.add({.name = "--op", .into = &options->op, .help = "Only this op"});
  command.word("--backend", &options->backend, "What computes", {"cpu", "cuda", "reference"});
  command.word("--compute", &options->compute, "Products of the CPU with weights of bf16",
               {"auto", "fp32", "bf16", "amx"});
  command.flag("--neighbours", &options->neighbours,
               "Tries other values of the constants that kernels took from measuring, instead");
  command.add({.name = "--compare",
               .into = &options->compare,
               .help = "Also the times in this file, which --json wrote before, and now / before",
               .exists = command_line::Exists::file});
}

}  // namespace pecia::bench
