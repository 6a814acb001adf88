// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which of all cases a test takes. Families of models and parallel modes are nearly independent: a
/// family's kernels and norms do not see how tokens are cut, and schedules do not see the family. So
/// a few families take every mode, and each other family takes a few.

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

namespace pecia::test {

/// Whether tests take all cases: the label `long` sets PECIA_FULL_MATRIX.
inline bool full_matrix() {
  return std::getenv("PECIA_FULL_MATRIX") != nullptr;
}

/// Families that take every mode on every number of ranks: one with heads for many degrees, one with
/// heads for degrees of 3, one with windows, a mixture with windows and sinks, one with latents, and one whose layers
/// have heads of their own and share keys.
inline bool takes_every_mode(const std::string& family) {
  constexpr std::array families = {"llama-gqa-fp32", "llama-mha-tied",   "gemma3-windows",
                                   "gptoss-bf16",    "deepseek3-groups", "gemma4-shared-keys"};
  return full_matrix() || std::ranges::find(families, family) != families.end();
}

/// A number by which families that do not take everything are dealt out.
inline size_t number_of(const std::string& family) {
  size_t number = 0;
  for (const char letter : family) number = 31 * number + static_cast<unsigned char>(letter);
  return number;
}

/// Whether a dense family is met on emulated GPUs in the types that runs have there, or else in fp32.
/// Families that take every mode are met in both.
inline bool takes_narrow_types(const std::string& family) {
  return takes_every_mode(family) || number_of(family) % 2 == 0;
}
inline bool takes_fp32_on_gpus(const std::string& family) {
  return takes_every_mode(family) || number_of(family) % 2 == 1;
}

/// The cases of a family that are tried on `ranks` ranks: all if it takes every mode, else two on one
/// or two ranks, others for another family, and none on more ranks.
template <class Case>
std::vector<Case> cases_of(const std::string& family, int ranks, const std::vector<Case>& all) {
  if (takes_every_mode(family) || all.size() <= 2) return all;
  if (ranks > 2) return {};
  const size_t number = number_of(family);
  return {all[number % all.size()], all[(number + all.size() / 2) % all.size()]};
}

/// Every `step`-th case from case `first` on, counted around the end, so that there is one; or all in
/// the full matrix.
template <class Case>
std::vector<Case> every_nth(const std::vector<Case>& all, size_t first, size_t step) {
  if (full_matrix() || all.empty()) return all;
  std::vector<Case> some;
  for (size_t i = first % std::min(step, all.size()); i < all.size(); i += step)
    some.push_back(all[i]);
  return some;
}

}  // namespace pecia::test
