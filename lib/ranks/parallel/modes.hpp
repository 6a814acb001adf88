// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The parallel modes, and where each is legal. Every refusal, enumeration and printed list follows
/// from one table. modes.md is the table as people read it. Nothing here communicates.
///
/// A replica's ranks are a grid CP × SP × TP. CP cuts the tokens of the KV cache (ring), SP cuts
/// the rows of a pass and moves heads by all-to-all (Ulysses), TP cuts the weights. The heads of
/// the KV cache are cut over SP × TP.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/ranks/parallel/pass.hpp"

namespace pecia::parallel {

/// How prompts are read. On one rank alone, `auto` becomes `single`. No job names it.
enum class PrefillMode { single, ring, ulysses, usp, sp_tp, tp };
/// How output tokens are made. `single` has the same meaning as for prompts.
enum class DecodeMode { single, pass_q, broadcast_q, sp, tp, shift };

/// What must not change the results of a job.
enum class Reproducible {
  run,    ///< a run with the same layout gives the same text
  layout  ///< all layouts then legal give the same bits, in every batch (virtual_ranks.hpp)
};

/// Return the words of job files.
std::string_view name_of(PrefillMode mode);
std::string_view name_of(DecodeMode mode);
std::string_view name_of(AttentionExchange mode);

/// The modes that a job may name, in the order of the help.
inline constexpr std::array named_prefill_modes{
    PrefillMode::ring, PrefillMode::ulysses, PrefillMode::usp, PrefillMode::sp_tp, PrefillMode::tp};
inline constexpr std::array named_ring_modes{AttentionExchange::pass_kv, AttentionExchange::pass_q};
inline constexpr std::array named_decode_modes{DecodeMode::pass_q, DecodeMode::broadcast_q,
                                               DecodeMode::sp, DecodeMode::tp, DecodeMode::shift};

/// The grid of the ranks of one replica. EP is no further axis: experts are dealt out over the ranks
/// of SP × TP, or they are not (1).
struct Degrees {
  int cp = 1, sp = 1, tp = 1, ep = 1;

  int64_t ranks() const { return int64_t{cp} * sp * tp; }
  bool operator==(const Degrees&) const = default;
};

/// Returns the degrees above 1, such as "CP 2 × TP 4". The text is empty for one rank.
std::string to_string(const Degrees& degrees);

/// The sizes of a model that can be cut. The first four decide what is legal. All decide what pays.
/// Where a model has feed-forwards of several widths, ffn is what these have in common.
struct ModelShape {
  int64_t num_heads = 1, num_kv_heads = 1;
  int64_t full_kv_heads =
      0;  ///< of layers without a window, where these are others; 0: they are not
  int64_t ffn = 1;
  int64_t hidden = 1, head_dim = 1;
  /// Columns of the feed-forwards in an average layer, those of all experts; 0: as many as ffn.
  int64_t all_ffn = 0;
  int64_t experts = 0;  ///< of a layer with experts; 0: there is none
  /// What the columns of dense feed-forwards and of shared experts have in common, which TP cuts also
  /// where experts are dealt out; 0: there are none.
  int64_t dense_ffn = 0;
  int64_t ffn_matrices = 3;  ///< of a feed-forward: gate, up and down, or two without a gate
  /// Elements of the matrices of a layer's mixer that ranks of TP cut; 0: q, k, v and o of
  /// these heads.
  int64_t attention_weights = 0;
  /// Of recurrent layers, whose states go from rank to rank of the ring; 0: there are none.
  int64_t recurrent_heads = 0, recurrent_key_heads = 0;
};

/// A row of the table. It says which degrees are above 1 and which are 1. For such degrees, every
/// pair of these modes is legal.
struct ModeRow {
  bool cp, sp, tp;  ///< true: the degree is above 1; false: it is 1
  std::vector<PrefillMode> prefill;
  std::vector<DecodeMode> decode;
};
std::span<const ModeRow> mode_table();

/// Returns the row that the degrees belong to.
const ModeRow& row_of(const Degrees& degrees);

/// Return what all rows that have the mode have in common, such as "cp above 1, sp 1".
std::string needs(PrefillMode mode);
std::string needs(DecodeMode mode);

/// What a job asks for. An absent value means auto.
struct Setting {
  Degrees degrees;
  std::optional<PrefillMode> prefill = {};
  std::optional<AttentionExchange> ring = {};
  std::optional<DecodeMode> decode = {};
  std::optional<int64_t> shift_threshold = {};
  Reproducible reproducible = Reproducible::run;
  bool elastic = false;  ///< teams of some of the degrees.cp instances change from pass to pass
  std::optional<int64_t> gather_threshold = {};  ///< absent: all passes with prompts gather weights
};

struct Refusal {
  std::string key;      ///< "parallel.sp"
  std::string problem;  ///< "parallel.sp 2 does not divide the 9 query heads"
  std::string nearest;  ///< "sp 1 or 3"

  std::string text() const { return problem + ": use " + nearest; }
};

/// Returns the first reason why the setting cannot run. Degrees are checked before modes. Other
/// degrees are recommended only if they divide the replica's ranks, so that `cp: auto` takes the
/// rest.
std::optional<Refusal> refusal(const Setting& setting, const ModelShape& model);

/// A grid and a pair of modes for it.
struct ModePair {
  Degrees degrees;
  PrefillMode prefill = PrefillMode::single;
  DecodeMode decode = DecodeMode::single;

  bool operator==(const ModePair&) const = default;
};

/// Lists all grids CP × SP × TP with this number of ranks. CP descends first, then SP.
std::vector<Degrees> grids_of(int ranks);

/// The degrees of EP that go with a grid: 1, and SP · TP where the model has experts.
std::vector<int> expert_degrees(const Degrees& degrees, const ModelShape& model);

/// Lists every legal pair of modes on every grid of `ranks` ranks, in the order of grids_of and of
/// the table, and with each degree of EP.
std::vector<ModePair> legal_modes(int ranks, const ModelShape& model,
                                  Reproducible reproducible = Reproducible::run);

/// Tells whether passes with prompts gather each layer's weights: Ulysses over the ranks of TP.
bool gathers_weights(const Degrees& degrees, PrefillMode prefill);

/// Counts the ranks of the replica over which a prefill pass cuts its rows.
int row_ranks(const Degrees& degrees, PrefillMode prefill);

/// Counts the KV heads whose cache one rank holds. It holds its share of SP × TP, or one head that
/// several ranks hold.
int64_t kv_heads_of_rank(const Degrees& degrees, int64_t num_kv_heads);

}  // namespace pecia::parallel
