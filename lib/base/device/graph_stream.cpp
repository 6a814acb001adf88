// SPDX-License-Identifier: Apache-2.0
#include "lib/base/device/graph_stream.hpp"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::device {
namespace {

/// Launching a graph takes about as long as two kernels.
constexpr size_t least_work_of_a_graph = 3;

constexpr const char* variable = "PECIA_CUDA_GRAPHS";

}  // namespace

bool is_switched_on(const char* name, const char* what, bool otherwise) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return otherwise;
  if (std::string_view(text) == "1") return true;
  if (std::string_view(text) != "0")
    fail<InputError>("{} is '{}'; it is 0 (no {}) or 1", name, text, what);
  return false;
}

GraphStream::GraphStream() {
  if (!is_switched_on(variable, "graphs")) counts_.why_not = fmt::format("{}=0", variable);
}

void GraphStream::begin_step() {
  PECIA_CHECK(!in_step_, "a step within a step");
  in_step_ = true;
  next_ = 0;
  joint_works_ = 0;
  ++step_;
}

void GraphStream::end_step() {
  end_segment();
  in_step_ = false;
}

void GraphStream::drop_step() {
  in_step_ = false;
  segment_.clear();
  joint_ = nullptr;
}

bool GraphStream::hold_back(JointRanks& ranks, const JointWork& work) {
  if (!in_step_) return false;
  if (!ranks.why_not().empty()) {
    // Other ranks may have held back more works when all gave up; these are done alike everywhere.
    ranks.add_work(work.words);
    if (ranks.is_open()) return false;
    end_segment();
    work.enqueue();
    ranks.enqueued();
    return true;
  }
  // NCCL warns of deadlocks where graphs have several groups.
  if (joint_ != nullptr && joint_ != &ranks) end_segment();
  ranks.add_work(work.words);
  if (!counts_.why_not.empty()) agree(ranks, {JointRanks::Act::never, 0, counts_.why_not});
  if (ranks.is_open() && ranks.why_not().empty()) {
    joint_ = &ranks;
    segment_.add(work.enqueue, static_cast<const void*>(&ranks), work.words.size(),
                 work.memory.size());
    segment_.append_bytes(std::as_bytes(std::span(work.words)));
    segment_.append_bytes(std::as_bytes(std::span(work.memory)));  // addresses and sizes
    if (++joint_works_ == joint_works_of_first_segment) end_segment();
    return true;
  }
  end_segment();
  work.enqueue();
  ranks.enqueued();
  return true;
}

void GraphStream::end_segment() {
  if (segment_.empty()) return;
  std::swap(ended_, segment_);
  counts_.pieces += static_cast<int64_t>(ended_.size());
  segment_.clear();  // work that fails is not tried again
  JointRanks* const ranks = std::exchange(joint_, nullptr);
  // After an error other ranks may not come any more. Nobody will use what is dropped here.
  if (ranks != nullptr && std::uncaught_exceptions() > 0) return;
  using Act = JointRanks::Act;
  if (ended_.size() < least_work_of_a_graph) {
    if (ranks != nullptr) agree(*ranks, {Act::piecemeal});
    return enqueue_ended(ranks);
  }
  const size_t index = next_++;
  if (index == known_.size()) known_.emplace_back();
  std::vector<Known>& all = known_[index];
  const auto same =
      std::ranges::find_if(all, [&](const Known& known) { return ended_.same_as(known.work); });
  const bool is_new = same == all.end();
  Act act = is_new ? Act::piecemeal : same->has_graph ? Act::launch : Act::make;
  if (ranks != nullptr) act = agree(*ranks, {act, is_new ? 0 : same->joint_graph});
  if (is_new) return enqueue_new(index, ranks);
  same->last_step = step_;
  const size_t slot = index * most_known + static_cast<size_t>(same - all.begin());
  if (act < Act::make || (act == Act::make && !make(slot, *same, ranks))) {
    ++counts_.piecemeal;
    return enqueue_ended(ranks);
  }
  ++counts_.launched;
  if (ranks == nullptr) return launch_graph(slot);
  ++counts_.joint;
  ranks->watch_launch([&] { launch_graph(slot); });
  ranks->enqueued();
}

JointRanks::Act GraphStream::agree(JointRanks& ranks, const JointRanks::Proposal& mine) {
  const int64_t before = ranks.disagreements();
  const JointRanks::Act act = ranks.agree(mine);
  counts_.disagreed += ranks.disagreements() - before;
  if (!ranks.why_not().empty()) counts_.why_not_joint = ranks.why_not();
  return act;
}

void GraphStream::enqueue_ended(JointRanks* ranks) {
  ended_.enqueue();
  if (ranks != nullptr) ranks->enqueued();
}

/// It takes the place of what was launched longest ago.
void GraphStream::enqueue_new(size_t index, JointRanks* ranks) {
  std::vector<Known>& all = known_[index];
  if (all.size() < most_known) all.emplace_back();
  const auto oldest = std::ranges::min_element(all, {}, &Known::last_step);
  drop_joint(index * most_known + static_cast<size_t>(oldest - all.begin()), *oldest);
  oldest->has_graph = false;
  oldest->last_step = step_;
  std::swap(oldest->work, ended_);
  ++counts_.piecemeal;
  oldest->work.enqueue();
  if (ranks != nullptr) ranks->enqueued();
}

/// Returns whether there is a graph now, on all ranks.
bool GraphStream::make(size_t slot, Known& known, JointRanks* ranks) {
  std::string error;
  try {
    if (ranks != nullptr) drop_graph(slot);  // a graph of NCCL is made anew, not changed
    make_graph(slot, ended_);
  } catch (const DeviceLost&) {
    throw;
  } catch (const SystemError& failure) {
    error = failure.what();
  }
  if (ranks != nullptr) {
    known.joint_graph = ranks->agree_on_made(error);
    if (known.joint_graph == 0) {
      counts_.why_not_joint = ranks->why_not();
      drop_graph(slot);
      drop_joint_graphs();
      return false;
    }
  } else if (!error.empty()) {
    counts_.why_not = error;
    for (size_t each = 0; each < known_.size() * most_known; ++each) drop_graph(each);
    known_.clear();
    return false;
  }
  known.has_graph = true;
  ++counts_.made;
  return true;
}

void GraphStream::drop_joint(size_t slot, Known& known) {
  if (known.joint_graph == 0) return;
  drop_graph(slot);
  known.joint_graph = 0;
  known.has_graph = false;
}

void GraphStream::drop_joint_graphs() {
  for (size_t index = 0; index < known_.size(); ++index)
    for (size_t i = 0; i < known_[index].size(); ++i)
      drop_joint(index * most_known + i, known_[index][i]);
}

}  // namespace pecia::device
