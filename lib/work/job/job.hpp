// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A job as its file describes it: one struct per section, one member per key, in the file's order.
///
/// Words are enums, an absent optional stands for `auto`, sizes are bytes and times are seconds.
/// The schema (job_schema.hpp) says which values each key may have. Nothing here depends on the
/// machine.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/api/sampling.hpp"
#include "lib/files/prompts/produce.hpp"
#include "lib/model/config/config.hpp"
#include "lib/ranks/parallel/geometry.hpp"
#include "lib/ranks/parallel/levels.hpp"
#include "lib/ranks/parallel/modes.hpp"

namespace pecia::job {

/// `fp8_ffn`: fp8 in feed-forward layers alone, written {ffn: fp8}.
enum class Precision { fp32, bf16, fp16, fp8, int8, int4, fp8_ffn };

inline bool is_fp8(std::optional<Precision> value) {
  return value == Precision::fp8 || value == Precision::fp8_ffn;
}
enum class BackendKind { cpu, cuda };

/// Whether several ranks may use one GPU, and how they exchange then: by way of their hosts, or by
/// NCCL, which takes such ranks under MPS alone. For tests.
enum class GpuSharing { no, staged, nccl };

/// How weights come to the hosts: each host maps the files, or they read each byte once together.
enum class Load { mapped, spread };
using parallel::AttentionExchange;
using parallel::DecodeMode;
using parallel::PrefillMode;
using parallel::Reproducible;
enum class Order { longest_first, fcfs };

/// What the schedule makes small: the time until the whole batch has ended, or the time that
/// requests wait.
enum class Objective { throughput, ttft };
/// How requests get instances where teams change: each as instances become free, or a batch dealt to
/// them by LoongServe's four steps.
enum class TeamScheduler { greedy, loongserve };
/// Whether all instances read prompts and answer them, or some only read for others that answer. `any`:
/// as the batch is expected to end first.
enum class Phases : uint8_t { together, apart, any };

struct BatchGoal {
  std::optional<Objective> objective;  ///< auto: ttft where arrivals are replayed
  /// Seconds: at most this between two tokens of an answer, where that can be.
  std::optional<double> tbt_s = {};

  bool operator==(const BatchGoal&) const = default;
};
enum class Policy { prefill_first, chunked };
enum class Arrivals { ignore, replay };
enum class OverLength { fail, truncate_left, truncate_middle };
enum class Sparse { off, csa };
enum class SparseDecode { dense, sparse };
/// Which tokens' hidden states a vector is the mean of: the turn's last token, all of its tokens, or
/// each of its spans.
enum class Pool { last, mean, spans };
enum class Trace { off, summary, full };
enum class Progress { bar, lines, off };

/// Whether the machine's peak is measured (once, then kept), for "share of peak" in the report.
enum class Peak { measured, off };

/// Replaces rope_scaling of config.json, so that prompts may be longer than the model's own length.
/// `kind` is linear, dynamic or yarn.
struct RopeOverride {
  model::RopeScaling kind = model::RopeScaling::yarn;
  double factor = 1.0;
};

/// Which tokens' keys and values layers with a sliding window keep.
enum class KvKeeping {
  what_is_read,  ///< those that the window still reaches, where that saves memory
  all
};

/// What a sequence's slots are reserved for when it begins.
enum class KvAdmission {
  reserve,  ///< its prompts and the longest answers that they may have
  demand    ///< a likely answer; it grows by blocks, and others may have to yield
};

/// Where keys and values of sequences that have to yield lie until they come back.
enum class KvPark {
  host,  ///< in memory of the host
  disk,  ///< in the output folder
  off    ///< nowhere: these sequences read their tokens again
};

/// Whether, and in which folder, a draining run keeps the keys and values of unfinished prompts.
struct KvSaving {
  bool on = true;
  std::filesystem::path folder;  ///< empty (auto): `kv` in the output folder

  bool operator==(const KvSaving&) const = default;
};

/// How many ranks share a sequence's tokens.
struct CpSetting {
  std::optional<int> degree;  ///< absent: all ranks that the other degrees leave
  /// Every request has as many of these instances as it needs, and teams change from pass to pass.
  bool elastic = false;

  bool operator==(const CpSetting&) const = default;
};

/// The fewest and the most instances of an elastic request.
struct ElasticRange {
  int min = 1;
  std::optional<int> max;  ///< absent: all

  bool operator==(const ElasticRange&) const = default;
};

/// Which tokens sparse attention leaves out.
struct DropSetting {
  double share = 0;                  ///< of the tokens of level 2
  std::filesystem::path file;        ///< not empty: what a tuner found, in place of one share
  parallel::LayerDrops layers = {};  ///< not empty: by layer and KV head, in place of one share

  bool operator==(const DropSetting&) const = default;
};

/// What the settings of sparse attention are chosen for. At most one of the first two is present;
/// neither: off.
struct AttentionGoal {
  std::optional<double> loss;    ///< the fastest settings that lose at most this
  std::optional<double> ttft_s;  ///< those that lose least within this time to the first token
  /// Besides one of these: at least this share of what dense attention retrieves is retrieved.
  std::optional<double> retrieval = {};

  bool operator==(const AttentionGoal&) const = default;
};

struct Job {
  struct Model {
    std::filesystem::path path;
    std::optional<Precision> dtype;    ///< type of the resident weights; auto: as stored
    std::optional<Precision> compute;  ///< type of the operands of matrix products
    std::optional<Precision> wire;     ///< type in which activations travel between ranks
    std::optional<RopeOverride> rope_scaling;
    Load load = Load::mapped;
    bool replicate = false;       ///< a copy of the weights for each rank, near its cores
    std::optional<bool> prepack;  ///< panels of the weights on each host; auto: where they fit
  } model;

  /// parse_job leaves patterns as written; load_job gives existing files, sorted per pattern.
  std::vector<std::filesystem::path> input;
  std::filesystem::path output;
  std::optional<BackendKind> backend;
  GpuSharing gpu_sharing = GpuSharing::no;
  std::optional<std::filesystem::path> topology;  ///< file that describes where hosts are

  struct Parallel {
    std::optional<int> dp = 1;
    std::optional<int> pp = 1;  ///< stages of layers; absent: to be chosen
    CpSetting cp = {};
    ElasticRange elastic = {};
    std::optional<TeamScheduler> scheduler = {};
    Phases phases = Phases::together;
    std::optional<int> answering = {};  ///< instances that answer, with phases apart
    std::optional<int> sp = 1, tp = 1;
    std::optional<int> ep = {};  ///< ranks that experts are dealt out over
    std::optional<PrefillMode> prefill = {};
    std::optional<AttentionExchange> ring = {};
    std::optional<DecodeMode> decode = {};
    std::optional<int64_t> shift_threshold = {};   ///< most tokens of a shifted pass
    std::optional<int64_t> gather_threshold = {};  ///< fewest tokens of a pass that gathers weights
  } parallel;

  struct Attention {
    Sparse sparse = Sparse::off;
    parallel::Geometry geometry = parallel::Geometry::disjoint;
    std::optional<int> levels;
    std::optional<DropSetting> drop;
    std::optional<parallel::Micros> pipeline;  ///< micro-partitions
    std::optional<int64_t> first_tokens;
    AttentionGoal objective;
    SparseDecode decode = SparseDecode::dense;
  } attention;

  struct Generation {
    int32_t max_new_tokens = 256;
    kernels::SamplingParams sampling;
    int64_t seed = 0;
    std::optional<std::vector<int32_t>> stop_token_ids;  ///< auto: the model's
    std::vector<std::string> stop;                       ///< texts that end an answer
    bool ignore_eos = false;
    /// What every answer must look like; at most one of these is there.
    std::optional<std::filesystem::path> schema;  ///< of JSON
    std::optional<std::string> regex;
    std::vector<std::string> choice;
    /// Tokens of an answer that a pass tries at once, drafted from texts: at most this number, or as
    /// many as pay (auto); absent: none.
    std::optional<std::optional<int32_t>> drafts;
    int32_t logprobs = 0, prompt_logprobs = 0;  ///< −1: the whole vocabulary
  } generation;

  io::Produce produce = io::Produce::text;  ///< of turns whose shard does not say

  struct Vector {
    Pool pool = Pool::last;
    bool normalize = true;  ///< to length 1
    io::VectorType dtype = io::VectorType::fp32;
  } vector;

  struct Kv {
    std::optional<Precision> dtype;
    std::optional<int64_t> memory;         ///< bytes per rank
    std::optional<KvAdmission> admission;  ///< auto: demand
    std::optional<KvPark> park;  ///< auto: host while it has memory, then disk, then nowhere
    KvKeeping keep = KvKeeping::what_is_read;
    KvSaving save;
  } kv;

  struct Batch {
    std::optional<int64_t> max_sequences, max_batch_tokens;
    Order order = Order::longest_first;
    Policy policy = Policy::prefill_first;
    Arrivals arrivals = Arrivals::ignore;
    BatchGoal objective;
    bool prefix_sharing = true;
    std::optional<int64_t> limit;  ///< the first requests of the inputs; absent: all
  } batch;

  struct Limits {
    OverLength over_length = OverLength::fail;
    std::optional<double> wall_time_s;  ///< auto: the time limit of the Slurm job
    double grace_s = 60;
    double silence_s = 120, wait_s = 1800;
    int32_t retries = 0;  ///< how often turns that failed are run again before the run ends
  } limits;

  struct Report {
    Trace trace = Trace::summary;
    std::optional<Progress> progress;  ///< auto: a bar on a terminal, lines elsewhere
    Peak peak = Peak::measured;
    std::optional<double> node_hour_price;  ///< in any currency; absent: no costs in the report
  } report;

  Reproducible reproducible = Reproducible::run;
};

/// Parses the job in YAML `text` and applies `overrides` ("key.path=value", the value in YAML) in
/// order. It reads no other file: paths and patterns stay as written, so a rank may rebuild the job
/// from to_yaml's text. Throws InputError with every problem found: `name`, line, key, value, and
/// what is allowed.
Job parse_job(const std::string& text, const std::string& name,
              const std::vector<std::string>& overrides = {});

/// Parses a file of at most 1 MB, then resolves its paths against its folder, also where an override
/// gave them. Input patterns stay as written.
Job read_job(const std::filesystem::path& path, const std::vector<std::string>& overrides = {});

/// Does what read_job does, then resolves and expands the input patterns. Also throws InputError
/// for a pattern that matches nothing.
Job load_job(const std::filesystem::path& path, const std::vector<std::string>& overrides = {});

/// The keys that the job file (empty: none) or the overrides name, as "parallel.tp". Throws as
/// read_job does where they cannot be read.
std::set<std::string> named_keys(const std::filesystem::path& path,
                                 const std::vector<std::string>& overrides);

/// All keys with their values; parse_job gives the same job back. The JSON form is the `job` of
/// report.json.
std::string to_yaml(const Job& job);
std::string to_json(const Job& job);

/// A complete job file with a comment for each key. It parses to Job{}, apart from the keys without
/// a default (model.path, input, output), which have examples.
std::string default_yaml();

/// Throws Unsupported for settings that the job language has and this version does not implement.
/// The message names key, value and the nearest setting that works.
void refuse_unimplemented(const Job& job);

/// Throws Unsupported for settings that do not work on GPUs of this compute capability (90 is 9.0),
/// or on CPUs.
void refuse_on_gpus(const Job& job, int compute_capability);
void refuse_on_cpus(const Job& job);

/// The words that job files use, for first lines and reports.
std::string_view name_of(Precision value);
std::string_view name_of(BackendKind value);
using parallel::name_of;

}  // namespace pecia::job
