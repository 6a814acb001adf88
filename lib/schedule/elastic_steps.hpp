// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The decisions of elastic sequence parallelism, as functions of values. Nothing here
/// communicates, reads a clock or keeps a state. A scheduler calls these steps at each iteration:
///
///     dispatch      which waiting requests begin             elastic_dispatch.hpp
///     allocate      which instances read their prompts       elastic_allocate.hpp
///     batches       which requests share a team, and degrees elastic_batches.hpp
///     keepers       which instances keep the keys and values elastic_scaling.hpp
///     masters       how many instances have rows of a decode pass
///     degree_alone  the degree of one request of a batch job
///
/// allocate takes predictions of batches: the caller runs batches on all instances that could be
/// had, hands its by_instances to allocate, and runs batches again on those that were allocated.
/// Each result tells what was rejected and its predicted seconds, for the trace.
/// Source: LoongServe (scheduler: dispatching, elastic instance allocation, batching, elastic
/// scaling plan).

#include "lib/schedule/elastic_allocate.hpp"
#include "lib/schedule/elastic_batches.hpp"
#include "lib/schedule/elastic_dispatch.hpp"
#include "lib/schedule/elastic_scaling.hpp"
