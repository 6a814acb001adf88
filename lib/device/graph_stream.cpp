// SPDX-License-Identifier: Apache-2.0
#include "lib/device/graph_stream.hpp"

#include <algorithm>
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

bool is_switched_on(const char* name, const char* what) {
  const char* const text = std::getenv(name);
  if (text == nullptr || std::string_view(text) == "1") return true;
  if (std::string_view(text) != "0")
    fail<InputError>("{} is '{}'; it is 0 (no {}) or 1", name, text, what);
  return false;
}

GraphStream::GraphStream() {
  if (!is_switched_on(variable, "graphs")) counts_.why_not = std::string(variable) + "=0";
}

void GraphStream::begin_step() {
  PECIA_CHECK(!in_step_, "a step within a step");
  in_step_ = true;
  next_ = 0;
  ++step_;
}

void GraphStream::end_step() {
  end_segment();
  in_step_ = false;
}

void GraphStream::drop_step() {
  in_step_ = false;
  segment_.clear();
}

void GraphStream::end_segment() {
  if (segment_.empty()) return;
  std::swap(ended_, segment_);
  counts_.pieces += static_cast<int64_t>(ended_.size());
  segment_.clear();  // work that fails is not tried again
  if (ended_.size() < least_work_of_a_graph) return ended_.enqueue();
  const size_t index = next_++;
  if (index == known_.size()) known_.emplace_back();
  std::vector<Known>& all = known_[index];
  const auto same =
      std::ranges::find_if(all, [&](const Known& known) { return ended_.same_as(known.work); });
  if (same != all.end())
    return run_as_graph(index * most_known + static_cast<size_t>(same - all.begin()), *same);
  Known& known = place_for_new(all);
  known.has_graph = false;
  known.last_step = step_;
  std::swap(known.work, ended_);
  ++counts_.piecemeal;
  known.work.enqueue();
}

void GraphStream::run_as_graph(size_t slot, Known& known) {
  known.last_step = step_;
  if (!known.has_graph) {
    try {
      make_graph(slot, ended_);
    } catch (const DeviceLost&) {
      throw;
    } catch (const SystemError& error) {
      give_up_graphs(error.what());
      ++counts_.piecemeal;
      return ended_.enqueue();
    }
    known.has_graph = true;
    ++counts_.made;
  }
  launch_graph(slot);
  ++counts_.launched;
}

/// Where nothing is known yet, or what was launched longest ago.
GraphStream::Known& GraphStream::place_for_new(std::vector<Known>& all) {
  if (all.size() < most_known) return all.emplace_back();
  return *std::ranges::min_element(all, {}, &Known::last_step);
}

void GraphStream::give_up_graphs(const std::string& why) {
  counts_.why_not = why;
  known_.clear();
  drop_graphs();
}

}  // namespace pecia::device
