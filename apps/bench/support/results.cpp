// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/support/results.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "lib/base/core/build_info.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/isa.hpp"
#include "lib/base/core/json.hpp"
#include "lib/ranks/cluster/machine.hpp"

namespace pecia::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t min_width = 9;

std::string counted(int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// "a|b|" → {"a", "b", ""}
std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells{""};
  for (const char c : row)
    if (c == '|')
      cells.emplace_back();
    else
      cells.back() += c;
  return cells;
}

}  // namespace

Results::Results(const Session& session) : session_(session) {}

Results::Results(const Session& session, const std::string& what, const Json& facts)
    : Results(session) {
  begin(what, facts);
}

void Results::begin(const std::string& what, const Json& facts) {
  comm::Communicator& world = session_.world;
  const cluster::CpuFacts cpu = cluster::cpu_facts();
  const BuildInfo& build = build_info();
  const auto host = world.split_by_host();
  const auto hosts = static_cast<int64_t>(world.all_reduce_sum(host->rank() == 0 ? 1.0 : 0.0));
  const int ranks = world.size(), threads = session_.options.threads, runs = session_.options.runs;
  facts_ = Json{{"bench", "bench_" + session_.name},  // as in the lines of earlier versions
                {"cpu", cpu.model},
                {"cores_of_rank_0", cpu.cores.size()},
                {"hosts", hosts},
                {"ranks", ranks},
                {"threads", threads},
                {"isa", std::string(name_of(isa()))},
                {"version", build.version},
                {"commit", build.commit},
                {"build_type", build.build_type},
                {"compiler", build.compiler},
                {"mpi", session_.mpi},
                {"runs", runs}};
  facts_.update(facts);
  line(fmt::format(
      "{} · {} · {}, {} · {}, {} of {} · {} · pecia {} ({}, {}, {}) · {} · median of {}",
      session_.name, what, cpu.model, counted(std::ssize(cpu.cores), "core"),
      counted(hosts, "host"), counted(ranks, "rank"), counted(threads, "thread"), name_of(isa()),
      build.version, build.commit, build.build_type, build.compiler, session_.mpi,
      counted(runs, "run")));
}

void Results::on_device(const device::DeviceInfo& info) {
  if (!info.is_gpu()) return;
  facts_["gpu"] = info.name;
  line("computes on " + info.name);
}

void Results::line(const std::string& text) const {
  if (session_.world.rank() != 0) return;
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void Results::columns(const std::string& heads) {
  widths_.clear();
  for (const std::string& head : cells_of(heads))
    widths_.push_back(std::max(min_width, head.size()));
  cells(heads);
}

void Results::cells(const std::string& row) const {
  const std::vector<std::string> texts = cells_of(row);
  PECIA_CHECK(texts.size() == widths_.size(), "{} cells for {} columns", texts.size(),
              widths_.size());
  std::string text;
  for (size_t i = 0; i < texts.size(); ++i)
    text += fmt::format("{}{:>{}}", i == 0 ? "" : "  ", texts[i], widths_[i]);
  line(text);
}

void Results::write(const Json& values) const {
  const std::filesystem::path& path = session_.options.json;
  if (session_.world.rank() != 0 || path.empty()) return;
  Json object = facts_;
  object.update(values);
  std::ofstream file(path, std::ios::app);
  file << json_text(object) << '\n';
  file.close();
  if (!file)
    fail<SystemError>("{}: cannot append to it; name a file in a folder that is there",
                      path.string());
}

Json to_json(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

}  // namespace pecia::bench
