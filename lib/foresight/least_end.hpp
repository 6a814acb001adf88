// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Times that no schedule of a batch comes before.

#include "lib/foresight/batch_end.hpp"

namespace pecia::foresight {

/// Seconds before which no schedule of the batch ends, by these times: the largest of
///
///   - the longest request alone: its passes follow each other, and in each of them some instance has
///     a whole row;
///   - all work, dealt evenly to the replicas, in passes that are as full as they may be;
///   - for each k, the k smallest of the (k − 1) · dp + 1 largest requests: one replica has k of them.
///
/// Without kv_tokens any number of sequences has room.
double least_end_s(const Batch& batch, const resources::Resources& resources,
                   const ReplicaTimes& times);

/// Seconds that requests wait for the first token of their first turn, in the mean, if each has all
/// instances of a replica to itself as soon as it arrives.
double least_first_token_s(const Batch& batch, const resources::Resources& resources,
                           const ReplicaTimes& times);

}  // namespace pecia::foresight
