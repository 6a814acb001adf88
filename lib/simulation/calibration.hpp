// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Fits the efficiencies of a cluster to what runs and ops took.

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "kernels/phantom/phantom.hpp"
#include "lib/work/cluster_files/cluster.hpp"

namespace pecia::simulation {

/// Seconds of a rank's work, by the efficiency that they depend on.
struct WorkSeconds {
  double gemm_s = 0;     ///< products: gemm
  double prompts_s = 0;  ///< attention of prompts: attention
  double answers_s = 0;  ///< attention of answers: stream
  double other_s = 0;    ///< ops without FLOPs: copy
  double exposed_s = 0;  ///< waits for others, which are not fitted
  double all_s() const { return gemm_s + prompts_s + answers_s + other_s + exposed_s; }
};

/// What a run took, a rank on average. Attention is measured in all.
struct TakenSeconds {
  double gemm_s = 0, attention_s = 0, other_s = 0;
  double all_s = 0;  ///< of its passes
};

struct Observation {
  std::string name;
  TakenSeconds taken;
  std::function<WorkSeconds(const cluster_files::Cluster&)> foresee;
};

/// A fitted cluster, and what it was fitted to.
struct Calibration {
  cluster_files::Cluster cluster;
  struct Factor {
    const char* name;  ///< of the efficiency
    double before, after;
  };
  std::vector<Factor> factors;
  struct Residual {
    std::string name;
    double before_s, after_s, taken_s;  ///< of all passes: foreseen with either cluster, and taken
    double off() const { return after_s / taken_s - 1; }
  };
  std::vector<Residual> residuals;
  std::vector<std::string> sources;  ///< runs and files of which the observations are; the caller's
  bool kept = false;                 ///< later runs with such ranks go by it; the caller's
};
nlohmann::ordered_json to_json(const Calibration& calibration);

/// Scales the factors of the cluster's gemm, attention, stream and copy so that foreseen seconds come
/// closest to those taken: least squares of relative errors, of products, attention and other ops
/// each. Factors stay where no observation tells of them, and are never above 1. Links and overheads
/// are kept: what runs wait for is hidden in part. At least one observation.
Calibration fit_cluster(cluster_files::Cluster cluster,
                        const std::vector<Observation>& observations);

/// An op as the value of "work" in a line of `pecia-bench ops --json`:
///
///     {"op", "rows", "item_rows", "depth", "width", "operands", "flops", "bytes"}
nlohmann::json work_json(const kernels::OpWork& op);

/// An observation for each line of `pecia-bench ops --json`: the op alone on its server took median_s.
/// Row-invariant products and what a run does not call are left out, and so are lines of other
/// benchmarks. `gpu`: of the cluster that is fitted. Throws InputError naming file and line: no
/// file, not JSON, a line without its keys, ops of another backend, no op at all.
std::vector<Observation> timed_ops(const std::filesystem::path& file, bool gpu);

}  // namespace pecia::simulation
