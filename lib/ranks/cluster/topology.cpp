// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/cluster/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "lib/base/core/error.hpp"
#include "lib/ranks/cluster/launch.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/ranks/comm/server_map.hpp"

namespace pecia::cluster {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

RackServer from_file(const std::string& path, const std::string& host) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    fail<InputError>("topology file {}: cannot be read or is empty: {}", path,
                     std::strerror(errno));
  const auto hosts = parse_topology_file(text.str(), path);
  const auto entry = hosts.find(host);
  if (entry == hosts.end())
    fail<InputError>("{}: host {} is not in it; add a line: {} RACK", path, host, host);
  return entry->second;
}

constexpr char field_separator = '\n';  // occurs in no host name

std::vector<std::byte> encoded(const comm::RackServerGpu& place) {
  const std::string text =
      place.rack + field_separator + place.server + field_separator + std::to_string(place.device);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

comm::RackServerGpu decoded(const std::vector<std::byte>& bytes) {
  const auto parts = split(
      std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), field_separator);
  PECIA_CHECK(parts.size() == 3, "a place of {} parts", parts.size());
  return {parts[0], parts[1], std::stoi(parts[2])};
}

void require_different(std::span<const comm::RackServerGpu> places) {
  std::map<comm::RackServerGpu, size_t> first;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const auto [twin, is_new] = first.emplace(places[rank], rank);
    if (!is_new)
      fail<InputError>(
          "ranks {} and {} are both at {}; give each server a name of its own in the topology file",
          twin->second, rank, comm::to_string(places[rank]));
  }
}

void require_racks(std::span<const comm::RackServerGpu> places) {
  const auto known = [](const comm::RackServerGpu& place) { return !place.rack.empty(); };
  const auto with = std::find_if(places.begin(), places.end(), known);
  const auto without = std::find_if_not(places.begin(), places.end(), known);
  if (with == places.end() || without == places.end()) return;
  fail<InputError>(
      "rank {} (server {}) has no rack, while rank {} is in {}; start all ranks in the same way, "
      "or "
      "name every host in a topology file",
      without - places.begin(), without->server, with - places.begin(), with->rack);
}

/// "1 on a:n2 (rank 3)"
std::string server_text(std::span<const comm::RackServerGpu> places,
                        const std::vector<int>& ranks) {
  const comm::RackServerGpu& place = places[ranks.front()];
  return fmt::format("{} on {}:{} (rank{} {})", ranks.size(), place.rack.empty() ? "-" : place.rack,
                     place.server, ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

void require_even(std::span<const comm::RackServerGpu> places) {
  const comm::ServerMap servers(comm::server_of_rank(places));
  std::map<size_t, int> servers_by_ranks;
  for (int server = 0; server < servers.num_servers(); ++server)
    ++servers_by_ranks[servers.ranks(server).size()];
  if (servers_by_ranks.size() <= 1) return;
  size_t usual = 0;  // the most frequent number of ranks; of several, the largest
  for (const auto& [ranks, count] : servers_by_ranks)
    if (usual == 0 || count >= servers_by_ranks[usual]) usual = ranks;
  constexpr int most_named = 4;
  std::string others;
  int named = 0;
  for (int server = 0; server < servers.num_servers(); ++server)
    if (servers.ranks(server).size() != usual && ++named <= most_named)
      others += (others.empty() ? "" : ", ") + server_text(places, servers.ranks(server));
  if (named > most_named) others += fmt::format(", and {} more servers", named - most_named);
  fail<InputError>(
      "servers have different numbers of ranks: {} on each of {}, but {}; start as many on each "
      "(srun --ntasks-per-node=N, mpirun --map-by ppr:N:node)",
      usual, servers_by_ranks[usual], others);
}

}  // namespace

std::map<std::string, RackServer> parse_topology_file(const std::string& text,
                                                      const std::string& name) {
  std::map<std::string, RackServer> hosts;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host, rack, server, more;
    if (!(words >> host)) continue;
    if (!(words >> rack))
      fail<InputError>("{}:{}: host {} has no rack; a line is HOST RACK [SERVER]", name, number,
                       host);
    if (!(words >> server)) server = host;
    if (words >> more)
      fail<InputError>("{}:{}: '{}' is too much; a line is HOST RACK [SERVER]", name, number, more);
    if (!hosts.emplace(host, RackServer{rack, server}).second)
      fail<InputError>("{}:{}: host {} is given twice; keep one line", name, number, host);
  }
  return hosts;
}

std::optional<RackServer> parse_slurm_address(std::string_view address, std::string_view pattern) {
  const std::vector<std::string> names = split(address, '.'), kinds = split(pattern, '.');
  if (names.size() != kinds.size() || kinds.back() != "node") return std::nullopt;
  if (std::any_of(names.begin(), names.end(), [](const auto& part) { return part.empty(); }))
    return std::nullopt;
  RackServer place;
  for (size_t i = 0; i + 1 < names.size(); ++i) place.rack += (i > 0 ? "." : "") + names[i];
  place.server = names.back();
  return place;
}

PlaceFacts place_facts(int local_rank, const std::optional<std::filesystem::path>& topology_file) {
  return {host_name(), local_rank,
          topology_file ? topology_file->string() : variable("PECIA_TOPOLOGY_FILE"),
          variable("SLURM_TOPOLOGY_ADDR"), variable("SLURM_TOPOLOGY_ADDR_PATTERN")};
}

comm::RackServerGpu locate(const PlaceFacts& facts) {
  RackServer place{"", facts.host};
  if (facts.topology_file) {
    place = from_file(*facts.topology_file, facts.host);
  } else if (facts.slurm_address && facts.slurm_pattern) {
    place = parse_slurm_address(*facts.slurm_address, *facts.slurm_pattern).value_or(place);
  }
  return {place.rack, place.server, facts.local_rank};
}

void require_sound(std::span<const comm::RackServerGpu> by_rank) {
  require_different(by_rank);
  require_racks(by_rank);
  require_even(by_rank);
}

std::vector<comm::RackServerGpu> gather_places(comm::Communicator& world,
                                               const comm::RackServerGpu& mine) {
  std::vector<comm::RackServerGpu> places;
  for (const auto& bytes : world.all_gather(encoded(mine))) places.push_back(decoded(bytes));
  require_sound(places);
  return places;
}

std::vector<comm::RackServerGpu> find_places(
    comm::Communicator& world, const std::optional<std::filesystem::path>& topology_file) {
  comm::RackServerGpu mine;
  std::string problem;
  const int local_rank = world.split_by_host()->rank();
  try {
    mine = locate(place_facts(local_rank, topology_file));
  } catch (const InputError& error) {
    problem = fmt::format("rank {} (host {}): {}", world.rank(), host_name(), error.what());
  }
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(problem))))
    if (!bytes.empty())
      fail<InputError>("{}",
                       std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  return gather_places(world, mine);
}

}  // namespace pecia::cluster
