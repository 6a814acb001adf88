// SPDX-License-Identifier: Apache-2.0
/// Findings about GPUs and what connects them.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "apps/pecia/findings.hpp"
#include "lib/ranks/comm/one_shot.hpp"

namespace pecia::app {
namespace {

/// The number that a version begins with; 0 if it begins with none.
int major_of(const std::string& version) {
  int number = 0;
  std::from_chars(version.data(), version.data() + version.size(), number);
  return number;
}

std::vector<std::string> entries_of(std::string_view list) {
  std::vector<std::string> entries;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (comma > 0) entries.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return entries;
}

/// Which of `names` NCCL would take for a list like NCCL_SOCKET_IFNAME or NCCL_IB_HCA: entries are
/// beginnings of names, "^" before the list means all others, and "=" means whole names. An entry of
/// NCCL_IB_HCA may end with a port, ":1".
std::vector<std::string> chosen_by(std::string list, const std::vector<std::string>& names) {
  const bool others = list.starts_with('^');
  if (others) list.erase(0, 1);
  const bool whole = list.starts_with('=');
  if (whole) list.erase(0, 1);
  std::vector<std::string> chosen;
  for (const std::string& name : names) {
    const bool named = std::ranges::any_of(entries_of(list), [&](std::string entry) {
      entry = entry.substr(0, entry.find(':'));
      return whole ? name == entry : name.starts_with(entry);
    });
    if (named != others) chosen.push_back(name);
  }
  return chosen;
}

bool is_on(const std::optional<std::string>& variable) {
  return variable && *variable != "0";
}

}  // namespace

Finding judge_gpus(const GpuFacts& facts, const HostRanks& host) {
  const size_t listed = facts.host.gpus.size();
  if (!facts.built) {
    if (listed == 0) return ok("gpus", "none: this build has no CUDA");
    return warning("gpus",
                   fmt::format("this build has no CUDA, but nvidia-smi lists {}: {}", listed,
                               fmt::join(facts.host.gpus, ", ")),
                   "build with --preset cuda (kernels/cuda.md); until then set backend: cpu");
  }
  if (!facts.problem.empty()) return warning("gpus", facts.problem, "until then set backend: cpu");
  if (facts.gpus.empty() && listed > 0)
    return warning(
        "gpus", fmt::format("none is visible, though nvidia-smi lists {}", listed),
        "look at CUDA_VISIBLE_DEVICES; where MIG is on, make an instance (nvidia-smi mig "
        "-cgi) and name it by its UUID");
  if (facts.gpus.empty())
    return warning("gpus", "none is visible, though this build has CUDA",
                   "ask for some (srun --gpus-per-task=1), load the driver, or set backend: cpu");
  std::string text;
  for (const GpuFacts::Gpu& gpu : facts.gpus)
    text += fmt::format("{}{}, {} free of {}", text.empty() ? "" : "; ", gpu.name,
                        gib(gpu.free_bytes), gib(gpu.memory_bytes));
  const auto count = static_cast<int>(facts.gpus.size());
  if (count > 1 && count < host.ranks)
    return warning("gpus", text,
                   fmt::format("start at most {} ranks on this host: each wants a GPU", count));
  return ok("gpus", text);
}

Finding judge_driver(const GpuFacts& facts) {
  if (facts.toolkit.empty() || facts.gpus.empty()) return ok("gpu driver", "not used");
  struct Least {
    int toolkit, release;
  };
  constexpr Least all[] = {{13, 580}, {12, 525}};  // CUDA's release notes, minor compatibility
  const std::string& release = facts.host.driver;
  const std::string text =
      fmt::format("{}, for up to {}; built with CUDA {}", release.empty() ? "release ?" : release,
                  facts.gpus.front().driver, facts.toolkit);
  for (const Least& least : all)
    if (major_of(facts.toolkit) == least.toolkit && !release.empty() &&
        major_of(release) < least.release)
      return warning(
          "gpu driver", text,
          fmt::format("CUDA {} needs a driver of {} or newer: ask for one, or build with "
                      "an older toolkit (CUDA 12 needs 525)",
                      least.toolkit, least.release));
  return ok("gpu driver", text);
}

Finding judge_instances(const std::vector<std::vector<std::string>>& uuids_by_rank,
                        const std::optional<std::string>& visible) {
  constexpr const char* topic = "gpu instances";
  const auto is_instance = [](const std::string& name) { return name.starts_with("MIG-"); };
  if (visible && std::ranges::count_if(entries_of(*visible), is_instance) > 1)
    return warning(topic, fmt::format("CUDA_VISIBLE_DEVICES={}", *visible),
                   "a process can use one instance (MIG), the first that is named: name one for "
                   "each rank");
  std::map<std::string, int> ranks;
  for (const std::vector<std::string>& uuids : uuids_by_rank)
    for (const std::string& uuid : uuids)
      if (is_instance(uuid)) ++ranks[uuid];
  if (ranks.empty()) return ok(topic, "none");
  for (const auto& [uuid, count] : ranks)
    if (count > 1)
      return warning(
          topic, fmt::format("{} ranks of this host see {}", count, uuid),
          "give each rank its own: CUDA_VISIBLE_DEVICES=MIG-… (nvidia-smi -L lists them)");
  std::vector<std::string> names;
  for (const auto& [uuid, count] : ranks) names.push_back(uuid);
  return ok(topic, fmt::format("{}", fmt::join(names, ", ")));
}

Finding judge_peers(const GpuFacts& facts, const std::optional<std::string>& disabled) {
  constexpr const char* topic = "gpu peers";
  if (facts.gpus.size() < 2) return ok(topic, "this rank sees fewer than two GPUs");
  if (is_on(disabled))
    return warning(topic, fmt::format("NCCL_P2P_DISABLE={}", *disabled),
                   "GPUs of a host then exchange through its memory: unset it, unless they hang");
  if (facts.apart.empty()) return ok(topic, "each GPU reaches the memory of each other");
  std::string pairs;
  for (const auto& [from, to] : facts.apart)
    pairs += fmt::format("{}{} → {}", pairs.empty() ? "" : ", ", from, to);
  return warning(
      topic, "no direct access: " + pairs,
      "these pairs exchange through the host's memory: give tensor parallelism GPUs that "
      "nvidia-smi topo -m joins by NV# or PIX; in a virtual machine ask for peer access");
}

Finding judge_one_shot(const OneShotFacts& facts) {
  constexpr const char* topic = "one-shot sums";
  const auto& gpus = facts.gpus.gpus;
  const auto cannot = [&](const std::string& why) {
    if (!facts.asked_for) return ok(topic, "sums of steps are NCCL's: " + why);
    return warning(topic, why,
                   fmt::format("sums of steps are NCCL's: unset {}", comm::one_shot_switch));
  };
  if (gpus.empty() && !facts.asked_for) return ok(topic, "not used");
  if (gpus.empty()) return cannot("this rank sees no GPU");
  if (facts.why_not && facts.why_not->empty())
    return ok(topic, fmt::format("{} ranks add through peer memory here; {}", facts.ranks,
                                 facts.asked_for ? "steps of TP do so"
                                                 : fmt::format("{}=1 lets steps of TP do so",
                                                               comm::one_shot_switch)));
  if (facts.why_not)
    return cannot(
        fmt::format("{} ranks do not add through peer memory: {}", facts.ranks, *facts.why_not));
  const auto is_instance = [](const auto& gpu) { return gpu.uuid.starts_with("MIG-"); };
  if (std::ranges::any_of(gpus, is_instance))
    return cannot("instances of GPUs (MIG) do not reach another's memory");
  if (gpus.size() > 1 && !facts.gpus.apart.empty())
    return cannot(fmt::format("GPU {} does not reach the memory of GPU {}",
                              facts.gpus.apart.front().first, facts.gpus.apart.front().second));
  return ok(topic, "not tried: start a rank for each GPU, on two GPUs or more");
}

Finding judge_nccl_network(const NcclFacts& facts) {
  constexpr const char* topic = "nccl network";
  if (!facts.used) return ok(topic, "not used");
  const auto none_of = [&](const char* variable, const std::string& value, const char* kind,
                           const std::vector<std::string>& names) {
    return warning(topic, fmt::format("{}={}", variable, value),
                   fmt::format("it names no {} of this host; there are: {}", kind,
                               names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  };
  const auto interfaces =
      facts.socket_names ? chosen_by(*facts.socket_names, facts.interfaces) : facts.interfaces;
  if (facts.socket_names && interfaces.empty())
    return none_of("NCCL_SOCKET_IFNAME", *facts.socket_names, "network interface",
                   facts.interfaces);
  const auto adapters = facts.adapters ? chosen_by(*facts.adapters, facts.rdma) : facts.rdma;
  if (facts.adapters && adapters.empty())
    return none_of("NCCL_IB_HCA", *facts.adapters, "RDMA device", facts.rdma);
  const bool by_rdma = !adapters.empty() && !is_on(facts.ib_disabled);
  const std::string text = fmt::format(
      "{}; interfaces: {}", by_rdma ? fmt::format("RDMA by {}", fmt::join(adapters, ", ")) : "TCP",
      interfaces.empty() ? "none" : fmt::format("{}", fmt::join(interfaces, ", ")));
  if (facts.servers < 2) return ok(topic, text + "; one server needs neither");
  if (!facts.rdma.empty() && !by_rdma)
    return warning(topic, fmt::format("{}, NCCL_IB_DISABLE={}", text, *facts.ib_disabled),
                   "transfers between servers go over TCP although there is RDMA: unset it");
  if (!by_rdma && !facts.socket_names && interfaces.size() > 1)
    return warning(
        topic, text,
        "NCCL takes the first that it likes on each server, and these may not reach each "
        "other: set NCCL_SOCKET_IFNAME to the one between servers");
  if (by_rdma && !facts.peer_memory)
    return warning(topic, text + "; no GPUDirect",
                   "transfers take a copy through the host's memory: load nvidia_peermem, or use a "
                   "kernel and driver with DMA-BUF");
  return ok(topic, by_rdma ? text + "; GPUDirect" : text);
}

}  // namespace pecia::app
