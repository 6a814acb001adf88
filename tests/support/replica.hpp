// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A whole replica without files or job: requests in, results out, for tests on any number of
/// ranks.

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/core/dtype.hpp"
#include "lib/base/device/graph_stream.hpp"
#include "lib/base/report/spans.hpp"
#include "lib/engine/schedule/scheduler.hpp"
#include "lib/model/attention/kv_parking.hpp"
#include "lib/model/weights/device_weights.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/parallel/kv_routes.hpp"
#include "lib/ranks/parallel/levels.hpp"

namespace pecia::test {

struct SdpaCalls;  // tests/kernels/emulator/plain_sdpa.hpp

/// Where a replica of a test computes: on the host; on a separate device (separate_device.hpp), by
/// the CPU's kernels or the CUDA backend's, emulated; or on GPUs. Tensors travel by the host or by
/// NCCL.
enum class TestPlace {
  host,
  separate_staged,
  separate_nccl,
  emulated_staged,
  emulated_nccl,
  cuda_staged,
  cuda_nccl
};

/// PECIA_TEST_PLACE of the environment, which is one of these; host where it is not set. On GPUs
/// all ranks share the first one. With NCCL they take turns in the host's GPUs; where they share one,
/// NCCL is given NCCL_HOSTID for each rank.
TestPlace place_of_tests();

struct ReplicaSettings {
  int stages = 1;        ///< of layers
  int sp = 1, tp = 1;    ///< cp is what is left of a stage's ranks
  int ep = 1;            ///< 1, or sp · tp
  bool elastic = false;  ///< teams change; passes of an iteration run side by side
  parallel::PassModes modes;
  std::vector<comm::RackServerGpu> places;  ///< by rank; none: all on one server
  parallel::LinkCosts link_costs;           ///< execute::Replica::Settings::link_costs
  DType kv_dtype = DType::fp32;
  std::optional<DType> wire = {};  ///< execute::Replica::Settings::wire
  int64_t max_batch_tokens = 4096;
  int64_t max_sequences = 64;
  int64_t kv_tokens = 0;         ///< on each rank; 0: enough for everything at once
  int64_t kv_recent_tokens = 0;  ///< execute::Replica::Settings::kv_recent_tokens
  job::KvAdmission admission = job::KvAdmission::demand;
  int64_t block = 128;                         ///< schedule::SchedulerLimits::block
  std::optional<uint64_t> forced_yields = {};  ///< likewise
  schedule::DraftLimits drafts = {};           ///< likewise
  int64_t parking_tokens = schedule::SchedulerLimits{}.parking_tokens;  ///< likewise
  attention::ParkingPlaces parking = {};     ///< execute::Replica::Settings::parking
  schedule::DemandCounts* demand = nullptr;  ///< set at the end
  /// Set at the end: the most slots of layers that keep recent tokens that this rank had taken.
  int64_t* most_recent_tokens = nullptr;
  int logprobs = 0, prompt_logprobs = 0;
  std::vector<int32_t> stop_token_ids;
  bool normalizes_vectors = true;
  io::VectorType vector_type = io::VectorType::fp32;
  job::Policy policy = job::Policy::prefill_first;
  std::optional<parallel::AttentionExchange> ring =
      parallel::AttentionExchange::pass_kv;  ///< absent: by rule, of the rates
  parallel::RingRates ring_rates;
  /// Chunks of prompts with at least so many new tokens are attended by levels; it needs `sparse`.
  std::optional<int64_t> levels_from;
  std::optional<parallel::SparseSetting> sparse;
  std::function<void(const schedule::Plan&)> on_plan;  ///< sees every pass
  std::function<void(schedule::Plan&)> change_plan;    ///< what is executed instead
  device::GraphCounts* graphs = nullptr;               ///< set at the end, on a separate device
  report::TraceDetail trace = report::TraceDetail::off;
  bool layout_invariant = false;
  kernels::MatmulKind products = kernels::MatmulKind::fp32;  ///< of the CPU backend
  model::Quantize quantize = model::Quantize::nothing;  ///< not where the CPU's kernels compute
  /// With the CUDA backend weights are fp32, as products then; with layout_invariant or as_stored
  /// they are as the checkpoint has them.
  TestPlace place = place_of_tests();
  bool as_stored = false;
  bool widened = false;  ///< matrices that the checkpoint has as codes become numbers
  bool in_fp32 = false;  ///< all weights do, of fp32
  /// Counts the calls of the emulated kernels' attention library, which then exists.
  SdpaCalls* sdpa = nullptr;
};

/// A layout of the ranks, with a name for messages.
struct ModeVariant {
  std::string name;
  ReplicaSettings settings;
};

/// Takes the degrees and the modes of the pair. The thresholds have a meaning as in
/// parallel::pass_modes.
void set_modes(ReplicaSettings& settings, const parallel::ModePair& pair,
               std::optional<int64_t> shift_threshold = 6,
               std::optional<int64_t> gather_threshold = {});

/// One turn, no sampling parameters: `tokens` in, `new_tokens` greedy tokens out, row `row`.
batch::Request greedy_request(int64_t row, std::vector<int32_t> tokens, int32_t new_tokens);

/// Greedy turns of these lengths in rows from `row` on, which moves past them. The tokens of each
/// are random_tokens of `seed` + its row.
batch::Request greedy_turns(io::Followup followup, int64_t& row, std::span<const int64_t> lengths,
                            int64_t vocab, uint64_t seed, int32_t new_tokens);

/// Greedy requests of these lengths whose answers end at different times, then a chain, and a fork
/// without an answer to its first turn. Rows count from 0; tokens are random_tokens of `seed` + row.
std::vector<batch::Request> ragged_requests(std::span<const int64_t> lengths, int64_t vocab,
                                            uint64_t seed);

/// Runs the requests in their order with the checkpoint in `folder`; every rank of `comm` gives the
/// same and gets the results by row. Throws where a rank throws.
std::map<int64_t, batch::Finished> run_requests(comm::Communicator& comm,
                                                const std::filesystem::path& folder,
                                                std::vector<batch::Request> requests,
                                                const ReplicaSettings& settings);

/// What one rank alone gives, for tests that compare with it: rank 0 of `world` computes it, every
/// rank gets it. Collective.
std::map<int64_t, batch::Finished> run_alone(comm::Communicator& world,
                                             const std::filesystem::path& folder,
                                             const std::vector<batch::Request>& requests,
                                             const ReplicaSettings& settings);

/// The same, each request in a run of its own: the ranks share the runs. Collective.
std::map<int64_t, batch::Finished> run_one_by_one(comm::Communicator& world,
                                                  const std::filesystem::path& folder,
                                                  const std::vector<batch::Request>& requests,
                                                  const ReplicaSettings& settings);

/// Ids from 5 on, below `vocab`: a function of the seed.
std::vector<int32_t> random_tokens(int64_t count, int64_t vocab, uint64_t seed);

}  // namespace pecia::test
