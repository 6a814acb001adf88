#pragma once
/// Which jobs `reproducible: layout` can keep its word for: the same bits of every result for cp 1,
/// 2, 4 and 8 and in every batch, with the same model, max_batch_tokens (by which long prompts are
/// cut), kv.dtype and vector instructions. A turn that an earlier run left half answered is fed
/// again as one piece and may go on with other last bits.

#include "lib/runtime/job.hpp"

namespace pecia::runtime {

/// Unsupported, naming the key, for a job with reproducible: layout whose bits would depend on the
/// layout or the batch. Other jobs pass.
void check_layout_rules(const Job& job);

/// The same for the number of ranks that share a sequence, once it is known.
void check_layout_ring(const Job& job, int cp);

}  // namespace pecia::runtime
