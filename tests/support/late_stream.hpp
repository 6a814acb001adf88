// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "lib/base/device/graph_stream.hpp"

namespace pecia::test {

/// A stream whose work is done when somebody waits for it. Its graphs are what was enqueued while
/// they were made.
class LateStream : public device::GraphStream {
 public:
  void enqueue(std::function<void()> work) {
    end_segment();
    give(std::move(work));
  }
  /// Work that follows from `parts` alone.
  template <typename... Parts>
  void submit(std::function<void()> work, const Parts&... parts) {
    GraphStream::submit([this, work = std::move(work)] { give(work); }, parts...);
  }

  size_t num_graphs() const {
    return std::ranges::count_if(graphs_, [](const auto& graph) { return !graph.empty(); });
  }
  /// Whether work that is enqueued now goes into a graph.
  bool captures() const { return captured_ != nullptr; }

 private:
  using Graph = std::vector<std::function<void()>>;

  virtual void put(std::function<void()> work) = 0;

  void give(std::function<void()> work) {
    if (captures())
      captured_->push_back(std::move(work));
    else
      put(std::move(work));
  }
  void make_graph(size_t slot, const device::Commands& work) override {
    graphs_.resize(std::max(graphs_.size(), slot + 1));
    graphs_[slot].clear();
    captured_ = &graphs_[slot];
    work.enqueue();
    captured_ = nullptr;
  }
  void launch_graph(size_t slot) override {
    for (const auto& work : graphs_[slot]) put(work);
  }
  void drop_graph(size_t slot) override {
    if (slot < graphs_.size()) graphs_[slot].clear();
  }

  std::vector<Graph> graphs_;
  Graph* captured_ = nullptr;
};

/// On a stream of the CPU at once. Without parts it is not held back.
template <typename... Parts>
void submit(const device::Stream& stream, std::function<void()> work, const Parts&... parts) {
  auto* const late = dynamic_cast<LateStream*>(const_cast<device::Stream*>(&stream));
  if (late == nullptr)
    work();
  else if constexpr (sizeof...(parts) == 0)
    late->enqueue(std::move(work));
  else
    late->submit(std::move(work), parts...);
}

}  // namespace pecia::test
