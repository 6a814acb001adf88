// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/papers/papers.hpp"

namespace pecia::simulation::papers {

std::vector<Paper> all_papers() {
  return {context_parallelism(), sparse_sequence_parallelism(), shift_parallelism(),
          elastic_parallelism()};
}

}  // namespace pecia::simulation::papers
