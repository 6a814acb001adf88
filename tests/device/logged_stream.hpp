// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cctype>
#include <map>
#include <string>
#include <vector>

#include "lib/base/core/error.hpp"
#include "lib/base/device/graph_stream.hpp"

namespace pecia::test {

enum class Failure { none, no_graph, lost };

/// A stream that only writes down what it is asked for. Works are named by letters; equal letters
/// are equal work. Capitals are collective works of `ranks`.
class LoggedStream : public device::GraphStream {
 public:
  std::string log;
  Failure fails = Failure::none;  ///< to make graphs
  device::JointRanks* ranks = nullptr;
  int64_t count = 8;  ///< of the values of collective works
  /// Of each collective work that was done, in order: the capture that it came from, counted among
  /// captures with collective works, or 0.
  std::vector<int> captures;

  void give(const std::string& works) {
    for (const char work : works)
      if (std::isupper(static_cast<unsigned char>(work)) != 0)
        give_joint(work);
      else
        submit([this, work] { log += work; }, work);
  }
  /// What needs the stream itself.
  void mark() {
    end_segment();
    log += '|';
  }
  /// A step in which marks stand between works.
  std::string step(const std::string& works) {
    log.clear();
    begin_step();
    for (const char work : works)
      if (work == '|')
        mark();
      else
        give({work});
    end_step();
    return log;
  }
  size_t num_graphs() const { return graphs_.size(); }

 private:
  struct Graph {
    int joint_works = 0, capture = 0;
  };

  void give_joint(char work) {
    const auto enqueue = [this, work] {
      log += work;
      if (captured_ != nullptr)
        ++captured_->joint_works;
      else
        captures.push_back(0);
    };
    // The letter stands for the address.
    if (ranks != nullptr && hold_back(*ranks, {fmt::format("sum of {}", count),
                                               {{reinterpret_cast<const std::byte*>(
                                                     size_t{0} + static_cast<unsigned char>(work)),
                                                 1}},
                                               enqueue}))
      return;
    mark();
    enqueue();
  }
  void make_graph(size_t slot, const device::Commands& work) override {
    if (fails == Failure::no_graph) fail<SystemError>("no graph");
    if (fails == Failure::lost) fail<DeviceLost>("lost");
    Graph graph;
    captured_ = &graph;
    log += 'm' + std::to_string(slot) + '(';
    work.enqueue();
    log += ')';
    captured_ = nullptr;
    if (graph.joint_works > 0) graph.capture = ++num_captures_;
    graphs_[slot] = graph;
  }
  void launch_graph(size_t slot) override {
    log += 'g' + std::to_string(slot) + ' ';
    const Graph& graph = graphs_.at(slot);
    captures.insert(captures.end(), static_cast<size_t>(graph.joint_works), graph.capture);
  }
  void drop_graph(size_t slot) override {
    if (graphs_.erase(slot) > 0) log += 'x' + std::to_string(slot) + ' ';
  }

  std::map<size_t, Graph> graphs_;
  Graph* captured_ = nullptr;
  int num_captures_ = 0;
};

}  // namespace pecia::test
