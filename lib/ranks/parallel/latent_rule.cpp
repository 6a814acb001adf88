// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/latent_rule.hpp"

namespace pecia::parallel {

void LatentLoad::add(int64_t new_tokens, int64_t cached_tokens) {
  const auto count = static_cast<double>(new_tokens), cached = static_cast<double>(cached_tokens);
  rows += count;
  keys += cached + count;
  pairs += count * (cached + (count + 1) / 2);
}

bool expands_latents(const LatentHead& head, const LatentLoad& load, int ranks, bool keys_travel) {
  const double here = 1.0 / ranks;
  const double absorbed =
      here * (load.pairs * head.absorbed_per_pair() + load.rows * head.per_row_or_key());
  const double expanded = here * load.pairs * head.expanded_per_pair() +
                          (keys_travel ? 1 : here) * load.keys * head.per_row_or_key();
  return expanded < absorbed;
}

}  // namespace pecia::parallel
