// SPDX-License-Identifier: Apache-2.0
#include "lib/device/graph_stream.hpp"

#include <utility>

#include "lib/core/error.hpp"

namespace pecia::device {
namespace {

/// Launching a graph takes about as long as two kernels.
constexpr size_t least_work_of_a_graph = 3;

}  // namespace

void GraphStream::begin_step() {
  PECIA_CHECK(!in_step_, "a step within a step");
  in_step_ = true;
  next_ = 0;
}

void GraphStream::end_step() {
  end_segment();
  in_step_ = false;
  if (next_ == graphs_.size()) return;
  graphs_.resize(next_);
  keep_graphs(next_);
}

void GraphStream::drop_step() {
  in_step_ = false;
  segment_.clear();
}

void GraphStream::end_segment() {
  if (segment_.empty()) return;
  std::swap(ended_, segment_);
  segment_.clear();  // work that fails is not tried again
  if (ended_.size() < least_work_of_a_graph) return ended_.enqueue();
  const size_t index = next_++;
  if (index == graphs_.size()) graphs_.emplace_back();
  Commands& known = graphs_[index];
  if (!ended_.same_as(known)) {
    known.clear();  // if the graph cannot be made, its old contents must not be trusted
    make_graph(index, ended_);
    std::swap(known, ended_);
    ++counts_.made;
  }
  launch_graph(index);
  ++counts_.launched;
}

}  // namespace pecia::device
