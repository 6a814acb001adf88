// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the program says and writes about a run: the first line, report.json, the trace.

#include <filesystem>
#include <string>
#include <vector>

#include "lib/base/report/run_report.hpp"
#include "lib/base/report/spans.hpp"
#include "lib/engine/execute/replica_loop.hpp"
#include "lib/model/weights/weights.hpp"
#include "lib/ranks/cluster/topology.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/settle/measure/rounding.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::run {

/// Facts that stay the same during a run.
struct RunFacts {
  job::Job asked;       ///< with what its author leaves open of the layout
  const job::Job& job;  ///< with the layout that was chosen
  const model::ModelConfig& config;
  const resources::Resources& resources;
  int64_t weight_bytes = 0;                 ///< resident on this rank
  std::vector<comm::RackServerGpu> places;  ///< by rank of `ordered`
  std::string gpu;                          ///< rank 0's GPU, "" where it computes on the CPU
  std::string isa;                     ///< rank 0's (core/isa.hpp), "" where it computes on a GPU
  std::string attention_library = {};  ///< Backend::attention_library of rank 0
  std::string expert_library = {};     ///< Backend::expert_library of rank 0, for mixtures
  DType compute = DType::fp32;         ///< type of the operands of matrix products
  std::string weights = "fp32";        ///< model::types_text of what is resident
  std::optional<measure::WeightRounding> rounding = {};  ///< where they were rounded at load
  std::vector<int64_t> read_bytes = {};                  ///< LoadedWeights::read_bytes
  int64_t packed_bytes = 0;                              ///< LoadedWeights::packed_bytes
  double packing_s = 0;                                  ///< LoadedWeights::packing_s
};

/// The number of GPUs that the ranks compute on; 0 where they compute on cores.
int64_t num_gpus(const RunFacts& facts);

/// The number of hosts that the ranks are on.
int num_hosts(const RunFacts& facts);

/// Llama-3.1-8B bf16 15.0 GiB · 64 requests, 7.9M tokens · context 131072 · KV … · 16 ranks on 4
/// hosts: … and, where modes were auto, a second line with the reasons for what they became.
std::string first_line(const RunFacts& facts, int64_t requests, int64_t prompt_tokens);

/// Gathers the report of all ranks on rank 0; empty on the others. Collective over `ordered`, the
/// ranks in grid order. `totals` count on the first rank of each replica and are empty elsewhere.
/// The caller adds what is left (counts.partial, counts.open).
std::optional<report::RunReport> gather_report(comm::Communicator& ordered, const RunFacts& facts,
                                               const execute::Replica& replica,
                                               const report::Recorder& recorder,
                                               const execute::ReplicaTotals& totals,
                                               double seconds);

/// Writes folder/trace: each rank writes its spans, and rank 0 may merge them into one file. `stage`: of
/// the rank, where there are several. Collective over `ordered`.
void write_traces(comm::Communicator& ordered, const std::filesystem::path& folder, int replica,
                  std::optional<int> stage, const report::Recorder& recorder);

}  // namespace pecia::run
