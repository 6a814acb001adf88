// SPDX-License-Identifier: Apache-2.0
/// Times the products that model.compute: auto takes on this CPU beside each kind of products for
/// all rows. Kinds are measured in turn, with weights that no cache holds, and medians count. The
/// rates are those of auto: bytes of weights, which limit few rows, and FLOPs, which limit many.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "apps/command_line/options.hpp"
#include "lib/base/core/build_info.hpp"
#include "lib/base/core/json.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/settle/measure/product_choice.hpp"
#include "lib/settle/measure/product_rates.hpp"
#include "lib/settle/measure/rotating_product.hpp"

namespace pecia::bench {
namespace {

struct Options {
  int threads = 1;
  int rounds = 15;
  std::vector<int64_t> rows = {1, 8, 64, 512};
  std::vector<int64_t> depths = {576, 1024, 2048, 4096};
  std::string weights = "bf16";
  bool json = false;
};

/// A backend with its times of one product.
struct Subject {
  std::string name;
  std::unique_ptr<kernels::Backend> backend;
  std::vector<double> seconds;

  double median() {
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }
};

DType weights_of(const Options& options) {
  return options.weights == "int8"   ? DType::int8
         : options.weights == "int4" ? DType::int4
                                     : DType::bf16;
}

/// Columns of weights that a product takes: all for few rows, and for many those of 2 GFLOP.
int64_t columns_of(const measure::RotatingProduct& product, int64_t rows, int64_t depth) {
  constexpr int64_t unit = measure::RotatingProduct::unit, most_flops = 2'000'000'000;
  return std::clamp(most_flops / (2 * rows * depth) / unit * unit, unit, product.columns());
}

/// The work of one product.
struct Work {
  int64_t depth, rows, columns, weight_bytes;

  double flops() const { return 2.0 * static_cast<double>(rows * columns * depth); }
};

void print_row(const Options& options, const Work& work, std::vector<Subject>& subjects) {
  double best = std::numeric_limits<double>::infinity();
  for (size_t i = 1; i < subjects.size(); ++i) best = std::min(best, subjects[i].median());
  const double seconds = subjects.front().median(), ratio = seconds / best;
  const double bytes_per_s = static_cast<double>(work.weight_bytes) / seconds;
  const double flops_per_s = work.flops() / seconds;
  if (options.json) {
    nlohmann::ordered_json line{{"bench", "products"},
                                {"cpu", cluster::cpu_facts().model},
                                {"commit", build_info().commit},
                                {"threads", options.threads},
                                {"weights", options.weights},
                                {"depth", work.depth},
                                {"rows", work.rows},
                                {"columns", work.columns},
                                {"weight_bytes", work.weight_bytes},
                                {"flops", work.flops()}};
    for (Subject& subject : subjects) line[subject.name + "_s"] = subject.median();
    line["auto_over_best"] = ratio;
    line["auto_weight_bytes_per_s"] = bytes_per_s;
    line["auto_flops_per_s"] = flops_per_s;
    std::puts(json_text(line).c_str());
    return;
  }
  fmt::print("{:>6} {:>5}", work.depth, work.rows);
  for (Subject& subject : subjects) fmt::print(" {:>9.3f}", 1e3 * subject.median());
  fmt::print(" {:>10.2f} {:>8.1f} {:>8.1f}\n", ratio, 1e-9 * bytes_per_s, 1e-9 * flops_per_s);
}

void measure_all(const Options& options) {
  constexpr int64_t weight_bytes = 128 << 20;
  const auto world = comm::make_null_communicator();
  const resources::Threads threads{options.threads, {}};
  const DType weights = weights_of(options);
  const measure::ProductChoice choice =
      measure::choose_products(job::Job(), weights, threads, *world);
  if (!options.json) {
    fmt::print("{} · {} threads · weights of {} · commit {}\nauto: {}, {}\n",
               cluster::cpu_facts().model, options.threads, options.weights, build_info().commit,
               measure::products_text(choice.products), choice.why);
    if (!choice.times.empty()) fmt::print("{}\n", times_text(choice.times));
  }
  std::vector<Subject> subjects;
  subjects.push_back({"auto", kernels::make_cpu_backend(choice.products), {}});
  for (const kernels::MatmulKind kind : kernels::all_matmul_kinds)
    if (kernels::why_no_products(kind).empty())
      subjects.push_back({std::string(name_of(kind)), kernels::make_cpu_backend(kind), {}});
  if (!options.json) {
    fmt::print("{:>6} {:>5}", "depth", "rows");
    for (const Subject& subject : subjects) fmt::print(" {:>9}", subject.name + " ms");
    fmt::print(" {:>10} {:>8} {:>8}\n", "auto/best", "GB/s", "GFLOP/s");
  }

  const auto device = device::make_host_device(threads.count, threads.cpus);
  const auto stream = device->make_stream();
  report::Recorder recorder;
  const int64_t most_rows = *std::max_element(options.rows.begin(), options.rows.end());
  for (const int64_t depth : options.depths) {
    const auto compute = [&](const Subject& subject) {
      return attention::Compute{*device, *stream, *subject.backend, recorder};
    };
    measure::RotatingProduct product(compute(subjects.front()), most_rows, depth, weights,
                                     weight_bytes);
    for (const int64_t rows : options.rows) {
      const int64_t columns = columns_of(product, rows, depth);
      for (Subject& subject : subjects) {
        subject.seconds.clear();
        product.run(compute(subject), rows, columns);  // grows workspaces
      }
      for (int round = 0; round < options.rounds; ++round)
        for (Subject& subject : subjects)
          subject.seconds.push_back(
              measure::own_seconds([&] { product.run(compute(subject), rows, columns); }));
      print_row(options, {depth, rows, columns, product.weight_bytes(columns)}, subjects);
    }
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Times the products that model.compute: auto takes beside the others");
  command_line::add_option(app, {.name = "--threads",
                                 .into = &options.threads,
                                 .help = "Threads per product",
                                 .show_default = true,
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--rounds",
                                 .into = &options.rounds,
                                 .help = "Timed rounds; the median counts",
                                 .show_default = true,
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--rows",
                                 .into = &options.rows,
                                 .help = "Rows of x",
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--depths",
                                 .into = &options.depths,
                                 .help = "Elements of a sum",
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--weights",
                                 .into = &options.weights,
                                 .help = "Type of the weights",
                                 .show_default = true,
                                 .among = {"bf16", "int8", "int4"}});
  command_line::add_option(
      app, {.name = "--json", .into = &options.json, .help = "One JSON object a line"});
  CLI11_PARSE(app, argc, argv);
  measure_all(options);
  return 0;
}

}  // namespace
}  // namespace pecia::bench

int main(int argc, char** argv) try {
  return pecia::bench::run(argc, argv);
} catch (const pecia::Error& error) {
  fmt::print(stderr, "bench_products: {}\n", error.what());
  return dynamic_cast<const pecia::InputError*>(&error) ? 2 : 1;
}
