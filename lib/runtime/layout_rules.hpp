#pragma once
/// Which jobs `reproducible: layout` can keep its word for.

#include "lib/runtime/job.hpp"

namespace pecia::runtime {

/// Unsupported, naming the key, for a job with reproducible: layout whose bits would depend on the
/// layout or the batch. Other jobs pass.
void check_layout_rules(const Job& job);

/// The same for the number of ranks that share a sequence, once it is known.
void check_layout_ring(const Job& job, int cp);

}  // namespace pecia::runtime
