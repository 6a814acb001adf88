// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/batch_sample.hpp"

#include <algorithm>
#include <cmath>

namespace pecia::settle {

std::vector<schedule::SimulatedRequest> part_of_a_replica(
    const std::vector<schedule::SimulatedRequest>& all, int replicas, size_t most) {
  const bool arrive = !all.empty() && all.front().arrival_s.has_value();
  std::vector<schedule::SimulatedRequest> chosen;
  for (const size_t i : part_of_a_replica(all.size(), arrive, replicas, most))
    chosen.push_back(all[i]);
  return chosen;
}

std::vector<size_t> part_of_a_replica(size_t count, bool arrive, int replicas, size_t most) {
  PECIA_CHECK(replicas >= 1 && most >= 1, "{} requests, {} replicas", most, replicas);
  const size_t of_replica = (count + replicas - 1) / replicas;
  const size_t step = replicas * (arrive ? 1 : (of_replica + most - 1) / most);
  std::vector<size_t> chosen;
  for (size_t i = 0; i < count && chosen.size() < most; i += step) chosen.push_back(i);
  return chosen;
}

size_t requests_of_turns(const std::vector<schedule::SimulatedRequest>& all, int64_t turns) {
  int64_t of_all = 0;
  for (const schedule::SimulatedRequest& request : all) of_all += std::ssize(request.turns);
  if (of_all <= turns) return std::max<size_t>(1, all.size());
  const auto share = static_cast<double>(turns) / static_cast<double>(of_all);
  return static_cast<size_t>(std::ceil(share * static_cast<double>(all.size())));
}

}  // namespace pecia::settle
