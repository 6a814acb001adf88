// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/timed_ops.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/core/error.hpp"
#include "lib/core/json.hpp"
#include "lib/machines/op_time.hpp"

namespace pecia::foresight {
namespace {

using Json = nlohmann::json;
using kernels::OpWork;

constexpr const char* remedy = "give a file of what bench_ops --json printed in this version";

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
  // Names live as long as the program, and the cost model asks for these three.
  const std::string name = line.text("op");
  OpWork op{};
  constexpr std::string_view products[] = {"linear", "gated_linear", "experts"};
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
WorkSeconds seconds_of(const std::vector<OpWork>& ops, const machines::Cluster& cluster) {
  WorkSeconds work;
  for (const OpWork& op : ops) {
    const double seconds = machines::op_seconds(op, cluster, 0);
    const auto [computing, moving] = machines::parts_of(op, cluster);
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

/// Whether a run has such an op: neither other ways to attention nor products of `layout` alone.
bool is_of_runs(const Line& line) {
  const bool row_invariant = line.values.value("row_invariant", false);
  return !row_invariant && line.text("op").find('(') == std::string::npos;
}

}  // namespace

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
    if (!is_of_runs(line)) continue;
    const double seconds = line.number("median_s");
    if (seconds == 0) line.refuse("median_s", "number above 0");
    if (!line.values.contains("work") || !line.values["work"].is_array() ||
        line.values["work"].empty())
      line.refuse("work", "list of ops");
    std::vector<OpWork> ops;
    for (const Json& work : line.values["work"]) ops.push_back(op_of({line.where, work}));
    found.push_back({fmt::format("{}, {}", line.text("op"), line.text("shape")),
                     taken_of(ops, seconds),
                     [ops](const machines::Cluster& cluster) { return seconds_of(ops, cluster); }});
  }
  if (found.empty())
    fail<InputError>("{}: there is no op of a run in it; {}", file.string(), remedy);
  return found;
}

}  // namespace pecia::foresight
