// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/support/pass_totals.hpp"

#include <algorithm>

#include "lib/ranks/parallel/expert_routes.hpp"

namespace pecia::bench {

Shares shares_since(comm::Communicator& world, const report::Totals& before,
                    const report::Totals& now, double seconds) {
  const double all = seconds * world.size();
  return {world.all_reduce_sum(now.comm_s - before.comm_s) / all,
          world.all_reduce_sum(now.idle_s - before.idle_s) / all};
}

Sent Sent::operator-(const Sent& before) const {
  return {total - before.total, expected_in_layers - before.expected_in_layers,
          expected_outside - before.expected_outside};
}

std::string Sent::problem(const ReplicaSettings& settings) const {
  const resources::Resources& of = settings.resources;
  const parallel::BlockPlace place{of.sp, of.tp, 0, 0, of.ep};
  if (of.ep > 1 && expert_peers(settings.sharding, place).size() > 1) return "";
  const double expected = expected_in_layers + expected_outside;
  return total == expected ? "" : fmt::format("{} bytes sent, {} by a phantom", total, expected);
}

Sent sent_by_all(comm::Communicator& world, Replica& replica) {
  const auto of_all = [&](int64_t mine) { return world.all_reduce_sum(static_cast<double>(mine)); };
  return {of_all(replica.traffic().bytes), of_all(replica.expected().in_layers),
          of_all(replica.expected().outside)};
}

std::vector<std::pair<std::string, double>> stage_seconds(const std::vector<report::Stage>& before,
                                                          const std::vector<report::Stage>& now) {
  std::vector<std::pair<std::string, double>> stages;
  for (const report::Stage& stage : now) {
    double seconds = stage.seconds;
    for (const report::Stage& earlier : before)
      if (std::string_view(earlier.name) == stage.name) seconds -= earlier.seconds;
    stages.emplace_back(stage.name, seconds);
  }
  std::sort(stages.begin(), stages.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  return stages;
}

void print_stages(const Results& results,
                  const std::vector<std::pair<std::string, double>>& stages) {
  for (const auto& [name, seconds] : stages)
    results.line(fmt::format("    {:>12.3f} ms  {}", seconds * 1e3, name));
}

}  // namespace pecia::bench
