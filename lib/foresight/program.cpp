// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/program.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

namespace pecia::foresight {
namespace {

constexpr int64_t folded_layers = 4;  // the first, two that must be alike, and the last

/// Writes down what a phantom does from `begin` on.
class Scribe : public execute::PhantomWatcher {
 public:
  void begin(const Activity& activity) { activity_ = &activity; }

  void computed(const kernels::OpWork& op) override { add(op); }
  void copied(int64_t bytes) override {
    if (activity_ == nullptr) return;
    if (!program_.empty() && program_.back().layer == activity_->layer &&
        !program_.back().steps.empty())
      if (auto* const last = std::get_if<Copy>(&program_.back().steps.back().what)) {
        last->bytes += bytes;
        return;
      }
    add(Copy{bytes});
  }
  int64_t started(const comm::PhantomStart& start) override {
    add(start);
    return starts_++;
  }
  void waited(int64_t number) override { add(Wait{starts_ - number}); }

  Program take() { return std::move(program_); }

 private:
  template <typename What>
  void add(const What& what) {
    if (activity_ == nullptr) return;
    const int32_t layer = activity_->layer;
    if (program_.empty() || program_.back().layer != layer) program_.push_back({{}, 1, layer});
    program_.back().steps.push_back({activity_->span, what});
  }

  const Activity* activity_ = nullptr;  ///< null: nothing is written yet
  int64_t starts_ = 0;
  Program program_;
};

Program record_each(const model::ModelConfig& config, const Recording& recording) {
  Scribe scribe;
  execute::PhantomSettings settings = recording.rank;
  settings.watcher = &scribe;
  execute::PhantomRank rank(config, settings);
  for (const schedule::Plan& plan : recording.before) rank.execute(plan);
  scribe.begin(rank.activity());
  rank.execute(recording.pass);
  return scribe.take();
}

/// The program of `layers` layers from that of folded_layers; absent where those between the first
/// and the last are not alike.
std::optional<Program> unfolded(Program program, int64_t layers) {
  const auto section = [&](int32_t layer) {
    return std::ranges::find(program, layer, &Section::layer);
  };
  const auto first = section(1), second = section(2), last = section(folded_layers - 1);
  if (last == program.end() || second + 1 != last || first + 1 != second) return {};
  if (!(first->steps == second->steps)) return {};
  first->times = layers - 2;
  last->layer = static_cast<int32_t>(layers - 1);
  program.erase(second);
  return program;
}

}  // namespace

bool Step::operator==(const Step& other) const {
  return std::strcmp(span, other.span) == 0 && what == other.what;
}

int64_t num_steps(const Program& program) {
  int64_t count = 0;
  for (const Section& section : program)
    count += section.times * static_cast<int64_t>(section.steps.size());
  return count;
}

Program record(const model::ModelConfig& config, const Recording& recording, Layers layers) {
  if (layers == Layers::folded && config.layers > folded_layers && !recording.rank.worker.sparse) {
    model::ModelConfig few = config;
    few.layers = folded_layers;
    few.pattern.resize(folded_layers);
    const auto& pattern = config.pattern;
    if (std::ranges::count(pattern, pattern.front()) == std::ssize(pattern))
      if (auto program = unfolded(record_each(few, recording), config.layers))
        return std::move(*program);
  }
  return record_each(config, recording);
}

}  // namespace pecia::foresight
