// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/papers/papers.hpp"

#include "lib/simulation/papers/measured_figures.hpp"

namespace pecia::simulation::papers {

std::vector<Paper> all_papers() {
  std::vector<Paper> papers{context_parallelism(), sparse_sequence_parallelism(),
                            shift_parallelism(), elastic_parallelism()};
  for (Paper& paper : papers) add_measured(paper);
  return papers;
}

}  // namespace pecia::simulation::papers
