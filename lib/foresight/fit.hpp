// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Fits the efficiencies of a cluster to what runs took.

#include <functional>
#include <string>
#include <vector>

#include "lib/machines/cluster.hpp"

namespace pecia::foresight {

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
  std::function<WorkSeconds(const machines::Cluster&)> foresee;
};

struct FittedCluster {
  machines::Cluster cluster;
  struct Residual {
    std::string name;
    double before_s, after_s, taken_s;  ///< of all passes: foreseen with either cluster, and taken
  };
  std::vector<Residual> residuals;
};

/// Scales the factors of the cluster's gemm, attention, stream and copy so that foreseen seconds come
/// closest to those taken: least squares of relative errors, of products, attention and other ops
/// each. Factors stay where no observation tells of them, and are never above 1. Links and overheads
/// are kept: what runs wait for is hidden in part. At least one observation.
FittedCluster fit_cluster(machines::Cluster cluster, const std::vector<Observation>& observations);

}  // namespace pecia::foresight
