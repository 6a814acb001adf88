// SPDX-License-Identifier: Apache-2.0
#include "lib/work/resources/threads.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>

#include "lib/base/core/error.hpp"
#include "lib/ranks/cluster/launch.hpp"
#include "lib/ranks/cluster/machine.hpp"

namespace pecia::resources {
namespace {

int number_of_threads(const std::string& text) {
  // "4,2" is OpenMP's list for nested teams.
  const std::string first = text.substr(0, text.find(','));
  int count = 0;
  const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), count);
  if (error != std::errc() || end != first.data() + first.size() || count < 1)
    fail<InputError>("OMP_NUM_THREADS is '{}'; it must be a number from 1 on", text);
  return count;
}

bool binds(const std::string& text) {
  std::string word = text.substr(0, text.find(','));
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* yes : {"true", "close", "spread", "master", "primary"})
    if (word == yes) return true;
  if (word == "false" || word.empty()) return false;
  fail<InputError>("OMP_PROC_BIND is '{}'; it may be true, false, close, spread, master or primary",
                   text);
}

}  // namespace

Threads choose_threads(std::span<const RankCores> ranks, int rank, std::optional<double> quota,
                       const ThreadWords& words) {
  const RankCores& mine = ranks[rank];
  std::set<int> all;
  size_t sum = 0;
  for (const RankCores& one : ranks) {
    all.insert(one.cores.begin(), one.cores.end());
    sum += one.cores.size();
  }
  const bool apart = sum == all.size();
  const size_t share = apart ? mine.cores.size() : all.size() / ranks.size();

  Threads threads;
  if (words.num_threads) {
    threads.count = number_of_threads(*words.num_threads);
  } else {
    // Threads beyond the quota would only be stopped in the middle of a step.
    double count = static_cast<double>(share);
    if (quota) count = std::min(count, *quota / static_cast<double>(ranks.size()));
    threads.count = std::max(1, static_cast<int>(count));
  }

  const bool same = std::all_of(ranks.begin(), ranks.end(),
                                [&](const RankCores& one) { return one.cores == mine.cores; });
  if (!words.proc_bind || !binds(*words.proc_bind) || (!apart && !same)) return threads;
  const size_t first = apart ? 0 : static_cast<size_t>(rank) * static_cast<size_t>(threads.count);
  const size_t needed = apart ? threads.count : ranks.size() * threads.count;
  if (needed <= mine.cpus.size())
    threads.cpus.assign(mine.cpus.begin() + static_cast<std::ptrdiff_t>(first),
                        mine.cpus.begin() + static_cast<std::ptrdiff_t>(first) + threads.count);
  return threads;
}

int64_t cores_of_host(std::span<const RankCores> ranks, std::optional<double> quota) {
  std::set<int> all;
  for (const RankCores& one : ranks) all.insert(one.cores.begin(), one.cores.end());
  const auto cores = static_cast<int64_t>(all.size());
  return quota ? std::min(cores, std::max<int64_t>(1, static_cast<int64_t>(*quota))) : cores;
}

Threads threads_of_rank(comm::Communicator& world) {
  const cluster::CpuFacts facts = cluster::cpu_facts();
  std::vector<int> mine = facts.cores;
  mine.insert(mine.end(), facts.cpus.begin(), facts.cpus.end());
  const auto host = world.split_by_host();
  std::vector<RankCores> ranks;
  for (const auto& bytes : host->all_gather(std::as_bytes(std::span(mine)))) {
    std::vector<int> numbers(bytes.size() / sizeof(int));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    const auto half = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
    ranks.push_back({{numbers.begin(), half}, {half, numbers.end()}});
  }
  const int64_t of_host = host->rank() == 0 ? cores_of_host(ranks, facts.quota) : 0;
  const double of_job = world.all_reduce_sum(static_cast<double>(of_host));
  Threads threads =  // last, as one rank alone may find its environment wrong
      choose_threads(ranks, host->rank(), facts.quota,
                     {cluster::variable("OMP_NUM_THREADS"), cluster::variable("OMP_PROC_BIND")});
  threads.cores_of_job = static_cast<int64_t>(of_job);
  threads.cache_bytes =
      facts.cache_bytes * threads.count / std::max<int64_t>(1, std::ssize(facts.cores));
  return threads;
}

}  // namespace pecia::resources
