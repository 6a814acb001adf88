// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/tune/resolve.hpp"

#include "lib/base/core/error.hpp"

namespace pecia::tune {
namespace {

void require_same(const Wanted& wanted, const char* what, const std::string& there,
                  const std::string& here) {
  if (there == here) return;
  fail<InputError>(
      "attention.drop: {} is for another {}: {} there, {} here; let pecia tune write one for this "
      "job, or use a share as attention.drop",
      wanted.file, what, there, here);
}

void require_for_this_run(const Tuned& tuned, const Wanted& wanted) {
  require_same(wanted, "version", tuned.version, wanted.version);
  const auto model = [](const std::string& path, const std::string& sha256) {
    return fmt::format("{} (config.json {:.12}…)", path, sha256);
  };
  if (tuned.config_sha256 != wanted.config_sha256)
    require_same(wanted, "model", model(tuned.model_path, tuned.config_sha256),
                 model(wanted.model_path, wanted.config_sha256));
  const auto grid = [](int cp, int tp) { return fmt::format("cp × sp {}, tp {}", cp, tp); };
  require_same(wanted, "grid", grid(tuned.cp, tuned.tp), grid(wanted.cp, wanted.tp));
  require_same(wanted, "geometry", name_of(tuned.geometry), name_of(wanted.geometry));
}

Candidates candidates_of(const Tuned& tuned, const Wanted& wanted) {
  Candidates candidates = tuned.candidates();
  candidates.levels.clear();
  candidates.given = wanted.micros;
  std::string known;
  for (const LevelChoice& choice : tuned.levels) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", choice.count());
    if (wanted.levels && choice.count() != *wanted.levels) continue;
    if (wanted.levels_here && wanted.levels_here(choice.count()) != choice.levels)
      fail<InputError>(
          "attention.drop: {} is for ranks in other places: {} levels join other ranks there; let "
          "pecia tune write one for this job",
          wanted.file, choice.count());
    candidates.levels.push_back(choice.count());
  }
  if (candidates.levels.empty())
    fail<InputError>("attention.levels: {} knows {} levels, and not {}; use levels: auto",
                     wanted.file, known, wanted.levels.value_or(0));
  return candidates;
}

}  // namespace

Resolved resolve(const Tuned& tuned, const Wanted& wanted) {
  require_for_this_run(tuned, wanted);
  const Candidates candidates = candidates_of(tuned, wanted);
  Tuned here = tuned;
  if (wanted.rates) here.time = tuned.time.with(*wanted.rates);
  const Costs costs = here.costs(wanted.longest_tokens);
  const auto found = search(wanted.goal, candidates, costs);
  if (!found) {
    std::string goal = wanted.goal.loss ? fmt::format("loss: {}", *wanted.goal.loss)
                                        : fmt::format("ttft: {}s", *wanted.goal.ttft_s);
    if (wanted.goal.retrieval) goal += fmt::format(", retrieval: {}", *wanted.goal.retrieval);
    const Found best = nearest(wanted.goal, candidates, costs);
    fail<InputError>(
        "attention.objective: {{{}}} cannot be met for a prompt of {} tokens; the best that can is "
        "{}, which loses up to {:.4f} nats per token in {:.3g} s and retrieves at least {:.0f} % "
        "of "
        "what dense attention does (by {}{})",
        goal, wanted.longest_tokens, to_string(best.setting), best.loss, best.ttft_s,
        100 * best.retrieval, wanted.file,
        wanted.rates ? ", with the rates of this run's machine" : "");
  }
  std::string why = fmt::format(
      "{} by {}{}, expected to lose {:.4f} nats per token (up to {:.4f}) and to retrieve {:.0f} % "
      "of "
      "what dense attention does (at least {:.0f} %); first token of the longest prompt after "
      "{:.3g} s, densely {:.3g} s",
      to_string(found->setting), wanted.file,
      wanted.rates ? " with the rates of this run's machine" : "",
      here.loss.loss(wanted.longest_tokens, found->setting), found->loss,
      100 * (1 - here.missed.loss(here.missed.longest, found->setting)), 100 * found->retrieval,
      found->ttft_s,
      here.time.dense_ttft_s(wanted.longest_tokens, parallel::level_parts(wanted.cp, wanted.tp)));
  if (wanted.longest_tokens < tuned.loss.shortest || wanted.longest_tokens > tuned.loss.longest)
    why += fmt::format(" (it has {} tokens, and calibration had {} to {})", wanted.longest_tokens,
                       tuned.loss.shortest, tuned.loss.longest);
  Resolved resolved{found->setting, {}, why};
  if (found->setting.deal != Deal::even && found->setting.drop > 0)
    resolved.layers = here.facts.deals->of(found->setting.deal, found->setting.drop);
  return resolved;
}

}  // namespace pecia::tune
