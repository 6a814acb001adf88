// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The sizes of caches and batches for the memory that is free once weights are loaded.

#include "lib/settle/facts.hpp"

namespace pecia::settle {

/// These resources, whose degrees and modes are decided, with KV cache and batch sizes for the free
/// memory (resources::settle_memory). Call it before the cache is allocated. Collective over all
/// ranks; every rank gets the root rank's.
resources::Resources with_memory(const Facts& facts, const job::Job& job,
                                 resources::Resources resources);

}  // namespace pecia::settle
