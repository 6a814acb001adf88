// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/network.hpp"

#include <algorithm>
#include <functional>

#include "lib/base/core/error.hpp"

namespace pecia::simulation {

using comm::LinkLevel;

std::vector<double> fair_rates(const std::vector<std::vector<int>>& ports,
                               const std::vector<double>& rates) {
  std::vector<double> left = rates, found(ports.size(), -1);
  std::vector<int64_t> open(rates.size());  // flows of each port without a rate yet
  for (const auto& of_flow : ports)
    for (const int port : of_flow) ++open[port];
  for (size_t settled = 0; settled < ports.size();) {
    size_t narrowest = rates.size();
    const auto fair = [&](size_t port) { return left[port] / static_cast<double>(open[port]); };
    for (size_t port = 0; port < rates.size(); ++port)
      if (open[port] > 0 && (narrowest == rates.size() || fair(port) < fair(narrowest)))
        narrowest = port;
    const double rate = std::max(0.0, fair(narrowest));
    for (size_t flow = 0; flow < ports.size(); ++flow) {
      if (found[flow] >= 0 ||
          std::ranges::find(ports[flow], static_cast<int>(narrowest)) == ports[flow].end())
        continue;
      found[flow] = rate;
      ++settled;
      for (const int port : ports[flow]) left[port] -= rate, --open[port];
    }
  }
  return found;
}

int Network::port(int64_t key, double gbs) {
  const auto [at, is_new] = port_of_key_.try_emplace(key, static_cast<int>(ports_.size()));
  if (is_new) ports_.push_back({gbs * 1e9, {}});
  return at->second;
}

const Network::Route& Network::route(int from, int to) {
  const auto [at, is_new] = routes_.try_emplace({from, to});
  Route& route = at->second;
  if (!is_new) return route;
  const int per_server = cluster_.ranks_per_server;
  const int per_rack = per_server * cluster_.servers_per_rack;
  const auto pass = [&](LinkLevel level) {
    const cluster_files::Link& link = cluster_.links[static_cast<size_t>(level)];
    const int sharing = cluster_.sharing(level) / link.adapters;
    // Who has the port, the level, and the direction make a key.
    const auto key = [&](int rank, int direction) {
      return (int64_t{rank / sharing} * comm::num_link_levels + static_cast<int64_t>(level)) * 2 +
             direction;
    };
    const double gbs = link.gbs / link.adapters;
    route.latency = 1e-6 * link.us;
    route.ports.push_back(port(key(from, 0), gbs));
    if (level != LinkLevel::server || !link.shared)  // one bus has both directions
      route.ports.push_back(port(key(to, 1), gbs));
  };
  if (from / per_server == to / per_server) {
    pass(LinkLevel::server);
  } else {
    pass(LinkLevel::rack);
    if (from / per_rack != to / per_rack) pass(LinkLevel::system);
  }
  return route;
}

void Network::push(const Change& change) {
  changes_.push_back(change);
  std::ranges::push_heap(changes_, std::greater<>());
}

Network::Change Network::pop() {
  std::ranges::pop_heap(changes_, std::greater<>());
  const Change change = changes_.back();
  changes_.pop_back();
  return change;
}

/// Whether the change will happen: a message's rate may have changed since.
bool Network::is_valid(const Change& change) const {
  return change.version < 0 || change.version == flows_[change.message].version;
}

int64_t Network::send(double now, int from, int to, double bytes, double share, double more_s) {
  PECIA_CHECK(bytes > 0 && share > 0 && from != to, "{} bytes from rank {} to {}, share {}", bytes,
              from, to, share);
  const auto message = static_cast<int64_t>(flows_.size());
  const Route& way = route(from, to);
  flows_.push_back({&way, bytes / share});
  push({now + way.latency + more_s, message, -1});
  return message;
}

std::vector<int64_t> Network::advance(double now) {
  std::vector<int64_t> arrived;
  while (next_change() <= now) {
    const double at = next_change();
    std::vector<int> touched;
    while (next_change() == at) {
      const Change change = pop();
      if (!is_valid(change)) continue;
      Flow& flow = flows_[change.message];
      touched.insert(touched.end(), flow.route->ports.begin(), flow.route->ports.end());
      if (change.version < 0) {
        flow.since = at;
        for (const int each : flow.route->ports) {
          auto& flows = ports_[each].flows;
          flows.insert(std::ranges::lower_bound(flows, change.message), change.message);
        }
      } else {
        for (const int each : flow.route->ports) std::erase(ports_[each].flows, change.message);
        arrived.push_back(change.message);
      }
    }
    if (!touched.empty()) set_rates(at, touched);
  }
  std::ranges::sort(arrived);
  return arrived;
}

std::vector<Network::UnderWay> Network::under_way(double now) const {
  std::vector<UnderWay> all;
  for (const Change& change : changes_) {
    if (!is_valid(change)) continue;
    const Flow& flow = flows_[change.message];
    const bool moves = change.version >= 0;
    all.push_back({change.message, moves,
                   moves ? flow.left - flow.rate * (now - flow.since) : flow.left,
                   change.at - now});
  }
  return all;
}

void Network::shift(double seconds) {
  for (Change& change : changes_) {
    change.at += seconds;  // the heap's order stays
    if (is_valid(change) && change.version >= 0) flows_[change.message].since += seconds;
  }
}

/// Sets the rates of all flows that share ports with these, directly or by way of other flows.
void Network::set_rates(double now, const std::vector<int>& touched) {
  ++times_set_;
  std::vector<int> ports, waiting = touched;
  std::vector<int64_t> flows;
  while (!waiting.empty()) {
    const int each = waiting.back();
    waiting.pop_back();
    if (ports_[each].seen == times_set_) continue;
    ports_[each].seen = times_set_;
    ports_[each].index = static_cast<int>(ports.size());
    ports.push_back(each);
    for (const int64_t number : ports_[each].flows) {
      Flow& flow = flows_[number];
      if (flow.seen == times_set_) continue;
      flow.seen = times_set_;
      flows.push_back(number);
      waiting.insert(waiting.end(), flow.route->ports.begin(), flow.route->ports.end());
    }
  }
  std::ranges::sort(flows);
  std::vector<double> port_rates;
  for (const int each : ports) port_rates.push_back(ports_[each].rate);
  std::vector<std::vector<int>> ports_of_flow;
  for (const int64_t flow : flows) {
    auto& own = ports_of_flow.emplace_back();
    for (const int each : flows_[flow].route->ports) own.push_back(ports_[each].index);
  }
  const std::vector<double> rates = fair_rates(ports_of_flow, port_rates);
  size_t next = 0;
  for (const int64_t number : flows) {
    Flow& flow = flows_[number];
    const double rate = rates[next++];
    flow.left = std::max(0.0, flow.left - flow.rate * (now - flow.since));
    flow.since = now;
    if (rate == flow.rate) continue;  // it ends when it would have
    flow.rate = rate;
    push({now + flow.left / rate, number, ++flow.version});
  }
}

}  // namespace pecia::simulation
