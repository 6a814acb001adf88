// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ops that a benchmark has timed, as lines of JSON, and what a cluster foresees for them.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "kernels/phantom/phantom.hpp"
#include "lib/foresight/fit.hpp"

namespace pecia::foresight {

/// An op as the value of "work" in a line of `bench_ops --json`:
///
///     {"op", "rows", "item_rows", "depth", "width", "operands", "flops", "bytes"}
nlohmann::json work_json(const kernels::OpWork& op);

/// An observation for each line of `bench_ops --json`: the op alone on its server took median_s.
/// Row-invariant products and what a run does not call are left out, and so are lines of other
/// benchmarks. `gpu`: of the cluster that is fitted. Throws InputError naming file and line: no
/// file, not JSON, a line without its keys, ops of another backend, no op at all.
std::vector<Observation> timed_ops(const std::filesystem::path& file, bool gpu);

}  // namespace pecia::foresight
