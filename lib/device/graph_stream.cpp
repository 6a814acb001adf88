// SPDX-License-Identifier: Apache-2.0
#include "lib/device/graph_stream.hpp"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "lib/core/error.hpp"

namespace pecia::device {
namespace {

/// Launching a graph takes about as long as two kernels.
constexpr size_t least_work_of_a_graph = 3;

constexpr const char* variable = "PECIA_CUDA_GRAPHS";

}  // namespace

GraphStream::GraphStream() {
  const char* const text = std::getenv(variable);
  if (text == nullptr || std::string_view(text) == "1") return;
  if (std::string_view(text) != "0")
    fail<InputError>("{} is '{}'; it is 0 (no graphs) or 1", variable, text);
  counts_.why_not = std::string(variable) + "=0";
}

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
    try {
      make_graph(index, ended_);
    } catch (const DeviceLost&) {
      known.clear();  // its contents must not be trusted
      throw;
    } catch (const SystemError& error) {
      give_up_graphs(error.what());
      return ended_.enqueue();
    }
    std::swap(known, ended_);
    ++counts_.made;
  }
  launch_graph(index);
  ++counts_.launched;
}

void GraphStream::give_up_graphs(const std::string& why) {
  counts_.why_not = why;
  next_ = 0;
  graphs_.clear();
  keep_graphs(0);
}

}  // namespace pecia::device
