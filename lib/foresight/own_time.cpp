// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/own_time.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/machines/op_time.hpp"

namespace pecia::foresight {
namespace {

using ByLevel = std::array<double, comm::num_link_levels>;

/// Messages that started together: when they are done, and the level that takes longest.
struct Sent {
  double done_s = 0;
  size_t level = 0;
};

class Walk {
 public:
  Walk(int rank, const machines::Cluster& cluster, Others others)
      : rank_(rank), cluster_(cluster), working_(others == Others::alike ? 1 : 0) {
    const bool shares = others == Others::alike;
    for (size_t level = 0; level < rates_.size(); ++level)
      rates_[level] = 1e9 * cluster.links[level].gbs /
                      (shares ? cluster.sharing(static_cast<comm::LinkLevel>(level)) : 1);
    // What leaves a rack leaves its server as well.
    double& system = rates_[static_cast<size_t>(comm::LinkLevel::system)];
    if (shares) system = std::min(system, rates_[static_cast<size_t>(comm::LinkLevel::rack)]);
    now_ = own_.times.other_s = 1e-6 * cluster.overhead.step_us;
  }

  void step(const Step& step) {
    std::visit([this](const auto& what) { take(what); }, step.what);
  }

  OwnTime result() && {
    own_.times.end_s = now_;
    return own_;
  }

 private:
  void take(const kernels::OpWork& op) {
    const double seconds = machines::op_seconds(op, cluster_, working_);
    const auto [computing, moving] = machines::parts_of(op, cluster_);
    (computing > moving ? own_.compute_s : own_.memory_s) += seconds;
    (op.flops == 0                     ? own_.times.other_s
     : kernels::multiplies_weights(op) ? own_.times.gemm_s
                                       : own_.times.attention_s) += seconds;
    now_ += seconds;
  }

  void take(const Copy& copy) {
    const double seconds =
        machines::copy_seconds(static_cast<double>(copy.bytes), cluster_, working_);
    own_.memory_s += seconds;
    own_.times.other_s += seconds;
    now_ += seconds;
  }

  void take(const comm::PhantomStart& start) {
    const bool follows = !start.in_series && start.step > 0;
    const double begin = follows ? std::max(now_, sent_.back().done_s) : now_;
    ByLevel out{}, in{};
    own_.messages += std::ssize(start.sends);
    for (const comm::PhantomMessage& message : start.sends) {
      const size_t level = level_to(message.peer);
      own_.sent_bytes[level] += static_cast<double>(message.bytes);
      out[level] += on_link(message.bytes, start.in_series);
    }
    for (const comm::PhantomMessage& message : start.receives)
      in[level_to(message.peer)] += on_link(message.bytes, start.in_series);
    Sent sent{begin, 0};
    for (size_t level = 0; level < out.size(); ++level) {
      const double bytes = std::max(out[level], in[level]);
      const double latency_us =
          cluster_.links[level].us + (start.in_series ? 0 : cluster_.overhead.exchange_us);
      const double done_s = begin + 1e-6 * latency_us + bytes / rates_[level];
      if (bytes > 0 && done_s > sent.done_s) sent = {done_s, level};
    }
    sent_.push_back(sent);
  }

  void take(const Wait& wait) {
    const Sent& sent = sent_.at(sent_.size() - static_cast<size_t>(wait.starts_ago));
    const double waits = std::max(0.0, sent.done_s - now_);
    own_.times.exposed_comm_s += waits;
    own_.waiting_s[sent.level] += waits;
    now_ += waits;
  }

  /// A message's bytes, and those that the link could have moved beside.
  double on_link(int64_t bytes, bool in_series) const {
    const auto& shares = cluster_.efficiency;
    const auto size = static_cast<double>(bytes);
    return size / (in_series ? shares.send : shares.collective).of({.bytes = size});
  }

  /// As comm::link_level of the cluster's places.
  size_t level_to(int peer) const {
    const int per_server = cluster_.ranks_per_server;
    const int per_rack = per_server * cluster_.servers_per_rack;
    const auto level = rank_ / per_server == peer / per_server ? comm::LinkLevel::server
                       : rank_ / per_rack == peer / per_rack   ? comm::LinkLevel::rack
                                                               : comm::LinkLevel::system;
    return static_cast<size_t>(level);
  }

  int rank_;
  const machines::Cluster& cluster_;
  double working_;   ///< share of the other ranks of its server that work when it does
  ByLevel rates_{};  ///< of links, B/s
  double now_ = 0;
  std::vector<Sent> sent_;
  OwnTime own_;
};

}  // namespace

OwnTime own_time(const Program& program, int rank, const machines::Cluster& cluster,
                 Others others) {
  Walk walk(rank, cluster, others);
  for (const Section& section : program)
    for (int64_t time = 0; time < section.times; ++time)
      for (const Step& step : section.steps) walk.step(step);
  return std::move(walk).result();
}

}  // namespace pecia::foresight
