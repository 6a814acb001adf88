// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "lib/device/graph_stream.hpp"

namespace pecia::test {

/// A stream whose work is done when somebody waits for it. Its graphs are copies of the work that
/// they were made of: what they do is what was enqueued then.
class LateStream : public device::GraphStream {
 public:
  void enqueue(std::function<void()> work) {
    end_segment();
    put(std::move(work));
  }
  /// Work that follows from `parts` alone.
  template <typename... Parts>
  void submit(std::function<void()> work, const Parts&... parts) {
    GraphStream::submit([this, work = std::move(work)] { put(work); }, parts...);
  }

  size_t num_graphs() const {
    return std::ranges::count_if(graphs_, [](const auto& graph) { return !graph.empty(); });
  }

 private:
  virtual void put(std::function<void()> work) = 0;

  void make_graph(size_t slot, const device::Commands& work) override {
    graphs_.resize(std::max(graphs_.size(), slot + 1));
    graphs_[slot] = work;
  }
  void launch_graph(size_t slot) override { graphs_[slot].enqueue(); }
  void drop_graphs() override { graphs_.clear(); }

  std::vector<device::Commands> graphs_;
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
