// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Messages on links that are shared, in time. A message takes its latency and then moves at the
/// rate that the ports on its way leave for it; ports share their rates fairly (max-min). It is
/// deterministic.
///
///     level server     each rank has a port out and one in; shared: a server has one for all
///     level rack       the same, for what leaves the server; shared: each of its adapters has one for
///                      equal numbers of its ranks
///     level system     each rank has a port out and one in; shared: a rack has; and beside these the
///                      ports of level rack
///
/// Port rates are those of the cluster's links. A share below 1 makes a message longer instead.

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "lib/work/cluster_files/cluster.hpp"

namespace pecia::simulation {

class Network {
 public:
  /// `cluster` outlives the network. Ranks are placed as Cluster::place says.
  explicit Network(const cluster_files::Cluster& cluster) : cluster_(cluster) {}

  static constexpr double never = std::numeric_limits<double>::infinity();

  /// Sends `bytes` > 0 at time `now`, which is not before any time given so far; `share` is the share
  /// of a link that a message of its size achieves alone, and `more_s` is added to its latency.
  /// Returns the message's number: 0, 1, …
  int64_t send(double now, int from, int to, double bytes, double share, double more_s = 0);

  /// When something changes next: `advance` to this time before a later message is sent.
  double next_change() const { return changes_.empty() ? never : changes_.front().at; }
  /// Moves on to `now`. Returns the messages that have arrived, in the order of their numbers.
  std::vector<int64_t> advance(double now);

  /// A message that has not arrived.
  struct UnderWay {
    int64_t number;
    bool moves;         ///< its latency is over
    double left;        ///< bytes
    double changes_in;  ///< seconds until it begins to move, or arrives if nothing changes its rate
  };
  std::vector<UnderWay> under_way(double now) const;
  /// Lets all that is under way happen so much later.
  void shift(double seconds);

 private:
  struct Route {
    std::vector<int> ports;
    double latency = 0;  ///< s
  };
  /// A message.
  struct Flow {
    const Route* route;
    double left = 0, rate = 0;  ///< bytes, B/s
    double since = 0;           ///< the time at which `left` was left
    int64_t version = 0;        ///< of its rate
    int64_t seen = 0;           ///< the last time that a rate was set for it
  };
  struct Change {
    double at;
    int64_t message;
    int64_t version;  ///< of the flow, when it ends; −1: the message begins to move
    bool operator>(const Change& other) const {
      return at != other.at ? at > other.at : message > other.message;
    }
  };
  struct Port {
    double rate = 0;
    std::vector<int64_t> flows = {};  ///< in ascending order
    int64_t seen = 0;                 ///< the last time that rates were set for it
    int index = 0;                    ///< among the ports of that time
  };

  const Route& route(int from, int to);
  int port(int64_t key, double gbs);
  void set_rates(double now, const std::vector<int>& touched);
  void push(const Change& change);
  Change pop();
  bool is_valid(const Change& change) const;

  const cluster_files::Cluster& cluster_;
  std::vector<Flow> flows_;  ///< by message
  std::vector<Port> ports_;
  std::map<int64_t, int> port_of_key_;
  std::map<std::pair<int, int>, Route> routes_;
  std::vector<Change> changes_;  ///< a heap, the next one first
  int64_t times_set_ = 0;        ///< how often rates were set
};

/// The rates of flows that share ports, max-min fair: no flow can have more without taking from one
/// that has no more than it.
///   ports   [flows] the ports that each flow uses, not none
///   rates   [ports] B/s of each port
std::vector<double> fair_rates(const std::vector<std::vector<int>>& ports,
                               const std::vector<double>& rates);

}  // namespace pecia::simulation
