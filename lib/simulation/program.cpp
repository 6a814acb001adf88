// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/program.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "lib/model/config/stage.hpp"
#include "lib/ranks/parallel/stages.hpp"

namespace pecia::simulation {
namespace {

/// The layers that are recorded instead of all: the first, two that must be alike, and the last.
/// Sparse attention weighs tokens for the next layer but not for the last, which drops none, so the
/// last layer but one is recorded as well.
int64_t folded_layers(const Recording& recording) {
  return recording.rank.replica.sparse ? 5 : 4;
}

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

/// The program of `layers` layers from that of `recorded` ones, of which the first has the number
/// `begin`; absent where the second and the third are not alike.
std::optional<Program> unfolded(Program program, int32_t begin, int64_t recorded, int64_t layers) {
  const auto first = std::ranges::find(program, begin + 1, &Section::layer);
  if (std::distance(first, program.end()) < recorded - 1) return {};
  const auto second = std::next(first), third = std::next(second);
  if (second->layer != begin + 2 || third->layer != begin + 3 || !(first->steps == second->steps))
    return {};
  first->times = layers - recorded + 2;
  for (auto later = third; later != program.end(); ++later)
    if (later->layer > begin) later->layer += static_cast<int32_t>(layers - recorded);
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
  const int64_t recorded = folded_layers(recording);
  const execute::PhantomSettings& rank = recording.rank;
  const int stages = rank.replica.stages;
  const model::ModelConfig own =
      model::stage_of(config, stages, parallel::stage_place(rank.rank, rank.ranks, stages).stage);
  if (layers == Layers::folded && own.layers > recorded) {
    model::ModelConfig few = own;
    few.layers = recorded;
    few.pattern.resize(recorded);
    few.stage.end = few.stage.begin + recorded;
    const auto& pattern = own.pattern;
    const auto begin = static_cast<int32_t>(own.stage.begin);
    if (std::ranges::count(pattern, pattern.front()) == std::ssize(pattern))
      if (auto program = unfolded(record_each(few, recording), begin, recorded, own.layers))
        return std::move(*program);
  }
  return record_each(own, recording);
}

}  // namespace pecia::simulation
