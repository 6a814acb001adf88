// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A cluster as a value: what its ranks and links can do at most, and what they achieve. It
/// describes a machine that is not here, or one that was measured.

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/core/dtype.hpp"
#include "lib/ranks/comm/place.hpp"
#include "lib/ranks/parallel/fitted_rule.hpp"
#include "lib/work/cluster_files/efficiency.hpp"

namespace pecia::cluster_files {

/// What one rank can do at most.
struct RankPeaks {
  std::string name;
  bool gpu = false;
  std::map<DType, double> flops;  ///< FLOP/s of products, by the type of their operands
  double memory_gbs = 0;          ///< 1e9 B/s, while all ranks of a server work
  double memory_gib = 0;          ///< 2^30 B
  /// How many times memory_gbs, and how many times flops, a rank has while the others of its server
  /// wait. The second is above 1 where ranks share cores, or cores share a clock or units.
  double alone = 1, alone_flops = 1;
  double program_gib =
      0;  ///< what the program itself takes of memory_gib: libraries, buffers of MPI
  /// 1e9 B/s of memory that a rank writes for the first time, while all ranks do; 0: no time is
  /// counted for it.
  double first_touch_gbs = 0;
  /// 1e9 B/s between a GPU and its host's memory, in each direction; absent: as between servers, since
  /// the bus to the host leads to the network, too.
  std::optional<double> host_gbs = {};
  /// Collectives and ops follow each other, as on one stream: no op hides a sum, a gather or an
  /// all-to-all. Messages of rings move beside ops all the same.
  bool in_order = false;

  bool operator==(const RankPeaks&) const = default;
};

/// What messages take that go this far. Where a level is shared, ranks share its rate: those of a
/// server at the levels server and rack, those of a rack at the level system.
struct Link {
  double gbs = 0;  ///< 1e9 B/s for each rank, or for those that share it, in each direction
  double us = 0;   ///< from the start of a message until its first byte arrives
  bool shared = false;
  /// Of a link that the ranks of a server share: the adapters that it is made of. Equal numbers of
  /// ranks use each, so no message has more than its adapter's part of the rate.
  int adapters = 1;
  /// µs of each exchange of a collective, beside those of a message; absent: overhead.exchange_us.
  std::optional<double> exchange_us = {};

  bool operator==(const Link&) const = default;
};

/// A rule of pass-KV and pass-Q that was fitted to measured times, and the rings for which it holds.
struct RingRule {
  parallel::FittedRule rule;
  int ranks = 2;  ///< of the ring
  /// Heads of a rank, and the type of cached keys and values.
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  DType kv = DType::bf16;

  /// Whether it is one of rings like `other`'s.
  bool is_of(const RingRule& other) const;
  bool operator==(const RingRule&) const = default;
};

struct Cluster {
  int ranks_per_server = 1, servers_per_rack = 1;
  RankPeaks rank;
  std::array<Link, comm::num_link_levels> links;  ///< by LinkLevel
  /// Shares of the peaks above: of FLOP/s for products and attention, of memory_gbs for all that is
  /// read and written (copy) and for what attention reads (stream: most of it are keys and values,
  /// which lie beyond caches), of a link's gbs for messages between two ranks and for those of
  /// collectives.
  struct Shares {
    Efficiency gemm, attention, copy, send, collective;
    std::optional<Efficiency> stream = {};  ///< absent: as copy
    /// Of the rate of products that wait for memory, where rows of their weights lie apart, by the
    /// bytes of a row. (A core's prefetcher reads on into the columns of other ranks.) Absent: 1.
    std::optional<Efficiency> pieces = {};
    /// Of the rate of products that wait for memory, by the bytes of their weights: small matrices
    /// end before memory is busy. A product waits for memory that takes less than twice as long as
    /// one of one row. Its bytes then count, and of gemm its rows alone. Absent: depth and width do, too.
    std::optional<Efficiency> weights = {};
    /// Of the FLOP/s of fp32, for a delta net; absent: as attention. (With rows of 512 a core of a Zen 3
    /// reached 0.38, and 0.26 with Mamba-2, whose rows take as long and count two thirds of the FLOPs.)
    std::optional<Efficiency> recurrence = {};
    /// Of the FLOP/s of bf16, for recurrences in chunks whose products round to TF32 once; with operands
    /// of fp32 a third of it. Absent: as attention.
    std::optional<Efficiency> recurrence_chunks = {};
    /// Of a link's gbs between servers, for messages of collectives whose sender has one peer there at
    /// a time, as in rings and trees: one connection does not fill an adapter. Absent: as collective.
    std::optional<Efficiency> one_peer = {};
    bool operator==(const Shares&) const = default;
  } efficiency;
  /// What work takes beside: for each op or copy, for each pass, and for each step of a collective:
  /// starting and finding its messages, and waiting for ranks that had the slower moment. And what
  /// a recurrence takes for a row of a sequence, where a head's columns have a core for themselves; for
  /// a chunk of rows likewise, and with operands of fp32 three times as long. Where that is 0, ranks
  /// have no recurrences in chunks. `context_token_us` is what the host does for each token of a
  /// request's context, cached or not, before its first pass: text to tokens, and tables of positions
  /// and slots. `layer_us` is what each layer of a pass with prompts takes on ranks of several servers,
  /// beside its ops and messages: the host begins what is different for every prompt. Steps of answers
  /// are the same each time.
  struct Overhead {
    double op_us = 0, step_us = 0, exchange_us = 0, recurrent_row_us = 0, recurrent_chunk_us = 0,
           context_token_us = 0, layer_us = 0;
    bool operator==(const Overhead&) const = default;
  } overhead;
  std::optional<RingRule> ring_rule = {};  ///< of one model on these ranks; absent: rule B decides

  bool operator==(const Cluster&) const = default;

  /// Where ranks are if they fill one server after the other.
  comm::RackServerGpu place(int number) const;
  /// Ranks that share a level's rate: 1 where it is not shared.
  int sharing(comm::LinkLevel level) const;
  /// Seconds of a message until its first byte arrives, of one in a series or of a collective's exchange.
  double latency_s(comm::LinkLevel level, bool in_series) const;
  /// The level of messages between two ranks.
  comm::LinkLevel level_between(int a, int b) const;
  /// The share of a link that a message achieves alone. `peers`: ranks of other servers to which its
  /// sender sends at this time.
  double share_of_message(double bytes, bool in_series, comm::LinkLevel level, int peers) const;
  std::vector<comm::RackServerGpu> places(int ranks) const;
};

/// Reads a cluster file (YAML). Each key is required, so that no figure is hidden, but for the
/// optional ones: rank.alone and alone_flops (1), rank.program_gib and first_touch_gbs (0), rank.host_gbs (as links.rack),
/// efficiency.stream (as copy), efficiency.pieces (1), efficiency.weights (none),
/// efficiency.recurrence and recurrence_chunks (as attention), efficiency.one_peer (as collective),
/// adapters (1) and exchange_us (as overhead's) of a link, rank.in_order (false), overhead.exchange_us,
/// recurrent_row_us, recurrent_chunk_us, context_token_us and layer_us (0), ring_rule
/// (none). Throws InputError naming the line and the key: no file, not YAML, an unknown key (with the
/// nearest known one), a key that is missing, a rate that is zero or negative, a share outside (0, 1],
/// sizes of a curve that do not ascend.
Cluster read_cluster(const std::filesystem::path& file);
/// The same of a file's text; `name` stands for it in errors.
Cluster parse_cluster(const std::string& text, const std::string& name);

/// The cluster as a file that parse_cluster reads back as it was.
std::string to_yaml(const Cluster& cluster);

/// Names of the clusters that are known without a file.
std::vector<std::string> cluster_presets();
/// The preset's file; absent for other names.
std::optional<std::string> preset_text(std::string_view preset);

/// The preset of this name, or else the cluster file. Throws InputError as read_cluster does, and
/// for what is neither, naming the presets that may be meant.
Cluster cluster_of(const std::string& preset_or_file);

}  // namespace pecia::cluster_files
