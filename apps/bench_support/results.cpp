// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_support/results.hpp"

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

const char* plural(int64_t count) {
  return count == 1 ? "" : "s";
}

}  // namespace

Results::Results(const Session& session, const std::string& what, Json facts)
    : first_(session.world.rank() == 0), file_(session.options.json) {
  const cluster::CpuFacts cpu = cluster::cpu_facts();
  const BuildInfo& build = build_info();
  const auto host = session.world.split_by_host();
  const auto hosts =
      static_cast<int64_t>(session.world.all_reduce_sum(host->rank() == 0 ? 1.0 : 0.0));
  const int ranks = session.world.size(), threads = session.options.threads;
  facts_ = Json{{"bench", session.name},
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
                {"mpi", session.mpi},
                {"runs", session.options.runs}};
  facts_.update(facts);
  line(fmt::format(
      "{} · {} · {}, {} core{} · {} host{}, {} rank{} of {} thread{} · {} · pecia {} "
      "({}, {}, {}) · {} · median of {} run{}",
      session.name, what, cpu.model, cpu.cores.size(),
      plural(static_cast<int64_t>(cpu.cores.size())), hosts, plural(hosts), ranks, plural(ranks),
      threads, plural(threads), name_of(isa()), build.version, build.commit, build.build_type,
      build.compiler, session.mpi, session.options.runs, plural(session.options.runs)));
}

void Results::on_device(const device::DeviceInfo& info) {
  if (!info.is_gpu()) return;
  facts_["gpu"] = info.name;
  line("computes on " + info.name);
}

void Results::line(const std::string& text) const {
  if (!first_) return;
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void Results::columns(std::vector<std::string> heads) {
  widths_.clear();
  for (const std::string& head : heads) widths_.push_back(std::max(min_width, head.size()));
  row(heads);
}

void Results::row(const std::vector<std::string>& cells) const {
  PECIA_CHECK(cells.size() == widths_.size(), "{} cells for {} columns", cells.size(),
              widths_.size());
  std::string text;
  for (size_t i = 0; i < cells.size(); ++i)
    text += fmt::format("{}{:>{}}", i == 0 ? "" : "  ", cells[i], widths_[i]);
  line(text);
}

void Results::write(const Json& values) const {
  if (!first_ || file_.empty()) return;
  Json object = facts_;
  object.update(values);
  std::ofstream file(file_, std::ios::app);
  file << json_text(object) << '\n';
  file.close();
  if (!file)
    fail<SystemError>("{}: cannot append to it; name a file in a folder that is there",
                      file_.string());
}

Json to_json(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

}  // namespace pecia::bench
