// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/work/cluster_files/op_time.hpp"

namespace pecia::simulation {
namespace {

constexpr size_t num_factors = 4;  // gemm, attention, stream, copy
using PerFactor = std::array<double, num_factors>;

/// Σ seconds × times = taken.
struct Equation {
  PerFactor seconds;
  double taken_s;
};

std::vector<Equation> equations_of(const std::vector<Observation>& observations,
                                   const cluster_files::Cluster& cluster) {
  std::vector<Equation> all;
  for (const Observation& each : observations) {
    const WorkSeconds work = each.foresee(cluster);
    const TakenSeconds& taken = each.taken;
    for (const Equation& equation :
         {Equation{{work.gemm_s, 0, 0, 0}, taken.gemm_s},
          Equation{{0, work.prompts_s, work.answers_s, 0}, taken.attention_s},
          Equation{{0, 0, 0, work.other_s}, taken.other_s}})
      if (equation.taken_s > 0 &&
          std::ranges::any_of(equation.seconds, [](double s) { return s > 0; }))
        all.push_back(equation);
  }
  return all;
}

/// To four digits: more would tell of nothing.
double rounded(double factor) {
  return std::stod(fmt::format("{:.4g}", factor));
}

/// How much longer than foreseen each kind of work takes: least squares of relative errors, by
/// coordinate descent. What the equations leave open stays near 1.
PerFactor times_longer(const std::vector<Equation>& equations) {
  constexpr double weight_of_one = 0.01;
  constexpr int rounds = 200;
  constexpr double least = 0.05, most = 20;
  PerFactor times;
  times.fill(1);
  for (int round = 0; round < rounds; ++round)
    for (size_t k = 0; k < num_factors; ++k) {
      double along = weight_of_one, norm = weight_of_one;
      for (const Equation& equation : equations) {
        double rest = equation.taken_s;
        for (size_t other = 0; other < num_factors; ++other)
          if (other != k) rest -= equation.seconds[other] * times[other];
        const double share = equation.seconds[k] / equation.taken_s;
        along += share * rest / equation.taken_s, norm += share * share;
      }
      times[k] = std::clamp(along / norm, least, most);
    }
  return times;
}

using Json = nlohmann::json;
using kernels::OpWork;

constexpr const char* remedy = "give a file that pecia-bench ops --json wrote in this version";

/// One line of the file, or the work within it.
struct Line {
  std::string where;
  Json values;

  std::string text(const char* key) const {
    if (!values.contains(key) || !values[key].is_string()) refuse(key, "text");
    return values[key];
  }
  double number(const char* key) const {
    if (!values.contains(key) || !values[key].is_number() || !(values[key] >= 0.0))
      refuse(key, "number, 0 or more");
    return values[key];
  }
  [[noreturn]] void refuse(const char* key, const char* kind) const {
    fail<InputError>("{}: there is no '{}' that is a {}; {}", where, key, kind, remedy);
  }
};

OpWork op_of(const Line& line) {
  // Names live as long as the program, and the cost model asks for these.
  const std::string name = line.text("op");
  OpWork op{};
  constexpr std::string_view products[] = {"linear", "head_linear", "gated_linear", "experts"};
  const auto* const product = std::ranges::find(products, name);
  op.name = product != std::end(products) ? *product : "other";
  const std::string operands = line.text("operands");
  constexpr DType types[] = {DType::fp32, DType::bf16, DType::fp16, DType::fp8};
  const auto* const type = std::ranges::find(types, operands, name_of);
  if (type == std::end(types)) line.refuse("operands", "type of numbers");
  op.operands = *type;
  op.rows = static_cast<int64_t>(line.number("rows"));
  op.item_rows = line.number("item_rows");
  op.depth = line.number("depth");
  op.width = static_cast<int64_t>(line.number("width"));
  op.flops = line.number("flops");
  op.bytes_read = static_cast<int64_t>(line.number("bytes"));
  return op;
}

/// What the ops take on a rank whose neighbours wait.
WorkSeconds seconds_of(const std::vector<OpWork>& ops, const cluster_files::Cluster& cluster) {
  WorkSeconds work;
  for (const OpWork& op : ops) {
    const double seconds = cluster_files::op_seconds(op, cluster, 0);
    const auto [computing, moving] = cluster_files::parts_of(op, cluster);
    double& of = op.flops == 0                     ? work.other_s
                 : kernels::multiplies_weights(op) ? work.gemm_s
                 : computing >= moving             ? work.prompts_s
                                                   : work.answers_s;
    of += seconds;
  }
  return work;
}

TakenSeconds taken_of(const std::vector<OpWork>& ops, double seconds) {
  TakenSeconds taken{.all_s = seconds};
  const OpWork& first = ops.front();
  (first.flops == 0                     ? taken.other_s
   : kernels::multiplies_weights(first) ? taken.gemm_s
                                        : taken.attention_s) = seconds;
  return taken;
}

/// Whether an op tells of a factor: neither other ways to attention, nor products of `layout` alone,
/// nor recurrences, which are no products and wait for no memory.
bool tells_of_a_factor(const Line& line) {
  const bool row_invariant = line.values.value("row_invariant", false);
  const std::string op = line.text("op");
  return !row_invariant && op.find('(') == std::string::npos && op != "recurrence";
}

}  // namespace

Calibration fit_cluster(cluster_files::Cluster cluster,
                        const std::vector<Observation>& observations) {
  PECIA_CHECK(!observations.empty(), "no observations");
  Calibration found;
  for (const Observation& each : observations)
    found.residuals.push_back({each.name, each.foresee(cluster).all_s(), 0, each.taken.all_s});
  auto& shares = cluster.efficiency;
  if (!shares.stream) shares.stream = shares.copy;
  const std::array factors{&shares.gemm.factor, &shares.attention.factor, &shares.stream->factor,
                           &shares.copy.factor};
  constexpr std::array names{"gemm", "attention", "stream", "copy"};
  for (size_t k = 0; k < num_factors; ++k) found.factors.push_back({names[k], *factors[k], 0});
  // Work that waits for memory where it did not before scales in another way: fit again.
  constexpr int fits = 4;
  for (int fit = 0; fit < fits; ++fit) {
    const PerFactor times = times_longer(equations_of(observations, cluster));
    for (size_t k = 0; k < num_factors; ++k)
      *factors[k] = std::min(1.0, rounded(*factors[k] / times[k]));
  }
  for (size_t k = 0; k < num_factors; ++k) found.factors[k].after = *factors[k];
  for (size_t i = 0; i < observations.size(); ++i)
    found.residuals[i].after_s = observations[i].foresee(cluster).all_s();
  found.cluster = std::move(cluster);
  return found;
}

nlohmann::ordered_json to_json(const Calibration& calibration) {
  nlohmann::ordered_json json{{"runs", calibration.sources}};
  for (const auto& [name, before, after] : calibration.factors)
    json["factors"][name] = {{"before", before}, {"after", after}};
  json["kept"] = calibration.kept;
  json["residuals"] = nlohmann::ordered_json::array();
  for (const Calibration::Residual& each : calibration.residuals)
    json["residuals"].push_back({{"run", each.name},
                                 {"taken_s", each.taken_s},
                                 {"before_s", each.before_s},
                                 {"after_s", each.after_s},
                                 {"off", each.off()}});
  return json;
}

Json work_json(const OpWork& op) {
  return {{"op", op.name},
          {"rows", op.rows},
          {"item_rows", op.item_rows},
          {"depth", op.depth},
          {"width", op.width},
          {"operands", name_of(op.operands)},
          {"flops", op.flops},
          {"bytes", op.bytes_read + op.bytes_written}};
}

std::vector<Observation> timed_ops(const std::filesystem::path& file, bool gpu) {
  std::ifstream stream(file);
  if (!stream) fail<InputError>("{}: cannot be read: {}", file.string(), std::strerror(errno));
  const std::string backend = gpu ? "cuda" : "cpu";
  std::vector<Observation> found;
  int number = 0;
  for (std::string text; std::getline(stream, text);) {
    const Line line{fmt::format("{}:{}", file.string(), ++number), try_json<Json>(text)};
    if (!line.values.is_object()) fail<InputError>("{}: not a JSON object; {}", line.where, remedy);
    if (line.values.contains("bench")) continue;
    if (line.values.contains("machine")) {
      if (line.text("backend") != backend)
        fail<InputError>("{}: ops of the backend {}; the cluster is of {}", line.where,
                         line.text("backend"), backend);
      continue;
    }
    if (!tells_of_a_factor(line)) continue;
    const double seconds = line.number("median_s");
    if (seconds == 0) line.refuse("median_s", "number above 0");
    if (!line.values.contains("work") || !line.values["work"].is_array() ||
        line.values["work"].empty())
      line.refuse("work", "list of ops");
    std::vector<OpWork> ops;
    for (const Json& work : line.values["work"]) ops.push_back(op_of({line.where, work}));
    found.push_back(
        {fmt::format("{}, {}", line.text("op"), line.text("shape")), taken_of(ops, seconds),
         [ops](const cluster_files::Cluster& cluster) { return seconds_of(ops, cluster); }});
  }
  if (found.empty())
    fail<InputError>("{}: there is no op of a run in it; {}", file.string(), remedy);
  return found;
}

}  // namespace pecia::simulation
