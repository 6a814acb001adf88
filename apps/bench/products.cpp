// SPDX-License-Identifier: Apache-2.0
/// Times the products that model.compute: auto takes on this CPU beside each kind of products for
/// all rows. Kinds are measured in turn, with weights that no cache holds, and medians count. The
/// rates are those of auto: bytes of weights, which limit few rows, and FLOPs, which limit many.

#include <algorithm>
#include <limits>

#include "apps/bench/commands.hpp"
#include "apps/bench/support/results.hpp"
#include "lib/settle/measure/product_choice.hpp"
#include "lib/settle/measure/product_rates.hpp"
#include "lib/settle/measure/rotating_product.hpp"

namespace pecia::bench {
namespace {

struct ProductsOptions {
  std::vector<int64_t> rows = {1, 8, 64, 512};
  std::vector<int64_t> depths = {576, 1024, 2048, 4096};
  std::string weights = "bf16";
};

/// A backend with its times of one product.
struct ProductKind {
  std::string name;
  std::unique_ptr<kernels::Backend> backend;
  std::vector<double> seconds;

  double median() const { return spread(seconds).median; }
};

DType type_of_weights(const ProductsOptions& options) {
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
struct ProductWork {
  int64_t depth, rows, columns, weight_bytes;

  double flops() const { return 2.0 * static_cast<double>(rows * columns * depth); }
};

void print_product(const Results& results, const ProductWork& work,
                   const std::vector<ProductKind>& kinds) {
  double best = std::numeric_limits<double>::infinity();
  for (size_t i = 1; i < kinds.size(); ++i) best = std::min(best, kinds[i].median());
  const double seconds = kinds.front().median(), ratio = seconds / best;
  const double bytes_per_s = static_cast<double>(work.weight_bytes) / seconds;
  const double flops_per_s = work.flops() / seconds;
  std::string cells = fmt::format("{}|{}", work.depth, work.rows);
  nlohmann::ordered_json line{{"depth", work.depth},
                              {"rows", work.rows},
                              {"columns", work.columns},
                              {"weight_bytes", work.weight_bytes},
                              {"flops", work.flops()}};
  for (const ProductKind& kind : kinds) {
    cells += fmt::format("|{:.3f}", 1e3 * kind.median());
    line[kind.name + "_s"] = kind.median();
  }
  results.cells(
      cells + fmt::format("|{:.2f}|{:.1f}|{:.1f}", ratio, 1e-9 * bytes_per_s, 1e-9 * flops_per_s));
  line["auto_over_best"] = ratio;
  line["auto_weight_bytes_per_s"] = bytes_per_s;
  line["auto_flops_per_s"] = flops_per_s;
  results.write(line);
}

void run_products(const Session& session, const ProductsOptions& options) {
  constexpr int64_t weight_bytes = 128 << 20;
  session.require_one_rank("it times one rank's products");
  const resources::Threads threads{session.options.threads, {}};
  const DType weights = type_of_weights(options);
  const measure::ProductChoice choice =
      measure::choose_products(job::Job(), weights, threads, session.world);
  Results results(session, fmt::format("products with weights of {}", options.weights),
                  {{"weights", options.weights}});
  results.line(fmt::format("auto: {}, {}", measure::products_text(choice.products), choice.why));
  if (!choice.times.empty()) results.line(times_text(choice.times));
  std::vector<ProductKind> kinds;
  kinds.push_back({"auto", kernels::make_cpu_backend(choice.products), {}});
  for (const kernels::MatmulKind each : kernels::all_matmul_kinds)
    if (kernels::why_no_products(each).empty())
      kinds.push_back({std::string(name_of(each)), kernels::make_cpu_backend(each), {}});
  std::string heads = "depth|rows";
  for (const ProductKind& kind : kinds) heads += fmt::format("|{} ms", kind.name);
  results.columns(heads + "|auto/best|GB/s|GFLOP/s");

  const auto device = device::make_host_device(threads.count, threads.cpus);
  const auto stream = device->make_stream();
  report::Recorder recorder;
  const int64_t most_rows = *std::max_element(options.rows.begin(), options.rows.end());
  for (const int64_t depth : options.depths) {
    const auto compute = [&](const ProductKind& kind) {
      return attention::Compute{*device, *stream, *kind.backend, recorder};
    };
    measure::RotatingProduct product(compute(kinds.front()), most_rows, depth, weights,
                                     weight_bytes);
    for (const int64_t rows : options.rows) {
      const int64_t columns = columns_of(product, rows, depth);
      for (ProductKind& kind : kinds) {
        kind.seconds.clear();
        product.run(compute(kind), rows, columns);  // grows workspaces
      }
      for (int run = 0; run < session.options.runs; ++run)
        for (ProductKind& kind : kinds)
          kind.seconds.push_back(
              measure::own_seconds([&] { product.run(compute(kind), rows, columns); }));
      print_product(results, {depth, rows, columns, product.weight_bytes(columns)}, kinds);
    }
  }
}

}  // namespace

void add_products(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<ProductsOptions>();
  Command command(app, chosen, "products",
                  "Times the products that model.compute: auto takes beside the others",
                  [options](const Session& session) { run_products(session, *options); },
                  {.runs = 15, .threads = 1});
  command.positive("--rows", &options->rows, "Rows of x");
  command.positive("--depths", &options->depths, "Elements of a sum");
  command.word("--weights", &options->weights, "Type of the weights", {"bf16", "int8", "int4"});
}

}  // namespace pecia::bench
