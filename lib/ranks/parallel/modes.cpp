// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/modes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"

namespace pecia::parallel {
namespace {

using P = PrefillMode;
using D = DecodeMode;

bool has(const ModeRow& row, PrefillMode mode) {
  return std::find(row.prefill.begin(), row.prefill.end(), mode) != row.prefill.end();
}
bool has(const ModeRow& row, DecodeMode mode) {
  return std::find(row.decode.begin(), row.decode.end(), mode) != row.decode.end();
}

/// "sp 1 or 3" of a word and its values.
template <typename T>
std::string choices(std::string_view word, const std::vector<T>& values) {
  std::string text(word);
  for (size_t i = 0; i < values.size(); ++i) {
    const char* before = i == 0 ? " " : i + 1 == values.size() ? " or " : ", ";
    if constexpr (std::is_enum_v<T>)
      text += fmt::format("{}{}", before, name_of(values[i]));
    else
      text += fmt::format("{}{}", before, values[i]);
  }
  return text;
}

/// What all rows with the mode say: of each degree, and of those that differ from row to row
/// whether one of them is always above 1.
template <typename Mode>
std::string needs_of(Mode mode) {
  constexpr std::pair<const char*, bool ModeRow::*> degrees[]{
      {"cp", &ModeRow::cp}, {"sp", &ModeRow::sp}, {"tp", &ModeRow::tp}};
  std::vector<ModeRow> rows;
  for (const ModeRow& row : mode_table())
    if (has(row, mode)) rows.push_back(row);
  std::vector<std::string> needs;
  std::vector<bool ModeRow::*> mixed;
  std::string either;
  for (const auto& [name, above] : degrees) {
    const auto count = std::count_if(rows.begin(), rows.end(), std::mem_fn(above));
    if (count != 0 && count != std::ssize(rows)) {
      mixed.push_back(above);
      either += fmt::format("{}{}", either.empty() ? "" : " or ", name);
    } else {
      needs.push_back(fmt::format("{} {}", name, count == 0 ? "1" : "above 1"));
    }
  }
  const bool one_of_them = std::all_of(rows.begin(), rows.end(), [&](const ModeRow& row) {
    return std::any_of(mixed.begin(), mixed.end(), [&](auto above) { return row.*above; });
  });
  if (one_of_them) needs.push_back(either + " above 1");
  return fmt::format("{}", fmt::join(needs, ", "));
}

/// Whether one of the numbers is a multiple of the other: heads are dealt out whole, or each is
/// held by equally many ranks.
bool shares_evenly(int64_t heads, int64_t ranks) {
  return heads % ranks == 0 || ranks % heads == 0;
}

/// What ranks that share the heads of recurrent layers ask of them.
std::optional<std::string> recurrent_problem(int64_t ranks, const ModelShape& model) {
  const int64_t heads = model.recurrent_heads, keys = model.recurrent_key_heads;
  if (heads % ranks != 0)
    return fmt::format("does not divide the {} heads of recurrent layers", heads);
  if (keys > 0 && keys % ranks != 0 && ranks % keys != 0)
    return fmt::format("neither divides the {} key heads of recurrent layers nor is a multiple",
                       keys);
  return {};
}

/// What ranks that share the query heads ask of the KV heads of each kind of layer.
std::optional<std::string> kv_problem(int64_t ranks, const ModelShape& model) {
  for (const int64_t heads : {model.num_kv_heads, model.full_kv_heads})
    if (heads > 0 && !shares_evenly(heads, ranks))
      return fmt::format("neither divides the {} KV heads nor is a multiple of them", heads);
  return {};
}

/// What reproducible: layout asks of the parts into which weights are cut.
std::optional<std::string> split_problem(int64_t parts, const ModelShape& model,
                                         Reproducible reproducible) {
  if (reproducible == Reproducible::run || layout_splits(model.num_heads, model.ffn) % parts == 0)
    return {};
  return fmt::format(
      "does not divide 8, the {} query heads and the FFN's {} columns, which reproducible: layout "
      "needs",
      model.num_heads, model.ffn);
}

/// What TP alone asks of the model.
std::optional<std::string> tp_problem(int tp, const ModelShape& model, Reproducible reproducible) {
  if (model.num_heads % tp != 0)
    return fmt::format("does not divide the {} query heads", model.num_heads);
  if (auto problem = kv_problem(tp, model)) return problem;
  if (auto problem = recurrent_problem(tp, model)) return problem;
  if (model.ffn % tp != 0) return fmt::format("does not divide the FFN's {} columns", model.ffn);
  return split_problem(tp, model, reproducible);
}

/// What SP × TP ask of the heads.
std::optional<std::string> head_problem(int64_t ranks, const ModelShape& model) {
  if (model.num_heads % ranks != 0)
    return fmt::format("does not divide the {} query heads", model.num_heads);
  if (auto problem = recurrent_problem(ranks, model)) return problem;
  return kv_problem(ranks, model);
}

/// The nearest degrees on either side of `wanted` that divide `ranks` and pass.
std::vector<int> neighbours(int wanted, int64_t ranks, const std::function<bool(int)>& passes) {
  const auto legal = [&](int degree) { return ranks % degree == 0 && passes(degree); };
  std::vector<int> found;
  for (int degree = wanted - 1; degree >= 1 && found.empty(); --degree)
    if (legal(degree)) found.push_back(degree);
  for (int degree = wanted + 1; degree <= ranks; ++degree)
    if (legal(degree)) {
      found.push_back(degree);
      break;
    }
  return found;
}

std::optional<Refusal> cp_refusal(const Setting& setting) {
  const int cp = setting.degrees.cp;
  if (setting.reproducible == Reproducible::run || can_play_layout(cp)) return {};
  return Refusal{"parallel.cp",
                 fmt::format("parallel.cp {} does not divide the {} virtual ranks of reproducible: "
                             "layout",
                             cp, layout_ranks),
                 "cp 1, 2, 4 or 8, and dp for more ranks"};
}

/// The model of which TP and shift cut what is not dealt out.
ModelShape cut_shape(const Degrees& degrees, ModelShape model) {
  if (degrees.ep > 1) model.ffn = model.dense_ffn;
  return model;
}

std::optional<Refusal> ep_refusal(const Setting& setting, const ModelShape& model) {
  const int ep = setting.degrees.ep;
  if (ep == 1) return {};
  const int block = setting.degrees.sp * setting.degrees.tp;
  const auto refused = [&](const std::string& why, std::string nearest) {
    return Refusal{"parallel.ep", fmt::format("parallel.ep {} {}", ep, why), std::move(nearest)};
  };
  if (model.experts == 0) return refused("deals out experts, and this model has none", "ep 1");
  if (ep != block)
    return refused(fmt::format("is neither 1 nor the {} ranks of parallel.sp {} × parallel.tp {}",
                               block, setting.degrees.sp, setting.degrees.tp),
                   block > 1 && block <= model.experts ? fmt::format("ep 1 or {}", block) : "ep 1");
  if (ep > model.experts)
    return refused(fmt::format("leaves ranks without any of the {} experts", model.experts),
                   "ep 1");
  if (setting.reproducible == Reproducible::layout)
    return refused(
        "adds the results of each rank's experts first, and reproducible: layout needs an order "
        "that no layout changes",
        "ep 1");
  return {};
}

/// An elastic team keeps keys as they pass, and its answers' queries go to the holders alone.
std::optional<Refusal> elastic_refusal(const Setting& setting) {
  if (!setting.elastic) return {};
  if (setting.reproducible == Reproducible::layout)
    return Refusal{"parallel.cp",
                   "parallel.cp elastic cuts sequences by what else runs, and reproducible: layout "
                   "needs the same cut in every batch",
                   "cp auto"};
  if (setting.ring && *setting.ring != AttentionExchange::pass_kv)
    return Refusal{"parallel.ring",
                   fmt::format("parallel.ring {} leaves keys where they are computed, but with "
                               "parallel.cp elastic some instances keep the keys of others as they "
                               "pass",
                               name_of(*setting.ring)),
                   "ring auto or pass_kv"};
  if (setting.decode && setting.degrees.cp > 1 && *setting.decode != D::broadcast_q)
    return Refusal{"parallel.decode",
                   fmt::format("parallel.decode {} needs the same instances in every step, but "
                               "parallel.cp is elastic",
                               name_of(*setting.decode)),
                   "decode auto or broadcast_q"};
  return {};
}

std::optional<Refusal> tp_refusal(const Setting& setting, const ModelShape& model) {
  const Degrees& degrees = setting.degrees;
  const auto problem = tp_problem(degrees.tp, model, setting.reproducible);
  if (!problem) return {};
  const int64_t ranks = degrees.ranks() / degrees.sp;
  const auto passes = [&](int tp) { return !tp_problem(tp, model, setting.reproducible); };
  auto nearest = neighbours(degrees.tp, ranks, [&](int tp) {
    return passes(tp) && !head_problem(int64_t{degrees.sp} * tp, model);
  });
  if (nearest.empty()) nearest = neighbours(degrees.tp, ranks, passes);
  return Refusal{"parallel.tp", fmt::format("parallel.tp {} {}", degrees.tp, *problem),
                 choices("tp", nearest)};
}

std::optional<Refusal> sp_refusal(const Degrees& degrees, const ModelShape& model) {
  const int tp = degrees.tp;
  const auto problem = head_problem(int64_t{degrees.sp} * tp, model);
  if (!problem) return {};
  const std::string with_tp = tp > 1 ? fmt::format(" × parallel.tp {}", tp) : "";
  const auto nearest = neighbours(degrees.sp, degrees.ranks() / tp,
                                  [&](int sp) { return !head_problem(int64_t{sp} * tp, model); });
  return Refusal{"parallel.sp", fmt::format("parallel.sp {}{} {}", degrees.sp, with_tp, *problem),
                 choices("sp", nearest)};
}

std::string grid_text(const Degrees& degrees) {
  return degrees.ranks() == 1 ? "a replica is one rank" : "the grid is " + to_string(degrees);
}

/// Shift cuts each weight once more, over SP × TP.
std::optional<std::string> shift_problem(const Setting& setting, const ModelShape& model) {
  const int sp = setting.degrees.sp, tp = setting.degrees.tp;
  const int64_t parts = int64_t{sp} * tp;
  if (model.ffn % parts != 0)
    return fmt::format(
        "cuts the FFN's {} columns over parallel.sp {} × parallel.tp {}, which does not divide "
        "them",
        model.ffn, sp, tp);
  if (const auto problem = split_problem(parts, model, setting.reproducible))
    return fmt::format("cuts the weights over parallel.sp {} × parallel.tp {}, which {}", sp, tp,
                       *problem);
  return {};
}

std::optional<Refusal> gather_threshold_refusal(const Setting& setting) {
  if (!setting.gather_threshold) return {};
  const std::string threshold =
      fmt::format("parallel.gather_threshold {}", *setting.gather_threshold);
  if (!setting.prefill || !gathers_weights(setting.degrees, *setting.prefill))
    return Refusal{
        "parallel.gather_threshold",
        fmt::format("{} belongs to prefill ulysses with sp 1 and tp above 1, but {}, prefill {}",
                    threshold, grid_text(setting.degrees),
                    setting.prefill ? name_of(*setting.prefill) : "auto"),
        "gather_threshold auto"};
  if (*setting.gather_threshold < 1)
    return Refusal{"parallel.gather_threshold", threshold + " is no number of tokens",
                   "gather_threshold 1 or more"};
  return {};
}

template <typename Mode>
std::optional<Refusal> mode_refusal(std::string_view word, const std::optional<Mode>& mode,
                                    const std::vector<Mode>& legal, const Degrees& degrees) {
  if (!mode || std::find(legal.begin(), legal.end(), *mode) != legal.end()) return {};
  const std::string nearest =
      degrees.ranks() == 1 ? fmt::format("{} auto", word) : choices(word, legal);
  const std::string why = *mode == Mode::single ? std::string("one rank") : needs(*mode);
  return Refusal{
      fmt::format("parallel.{}", word),
      fmt::format("parallel.{} {} needs {}, but {}", word, name_of(*mode), why, grid_text(degrees)),
      nearest};
}

}  // namespace

std::string_view name_of(PrefillMode mode) {
  switch (mode) {
    case P::single:
      return "single";
    case P::ring:
      return "ring";
    case P::ulysses:
      return "ulysses";
    case P::usp:
      return "usp";
    case P::sp_tp:
      return "sp_tp";
    case P::tp:
      return "tp";
  }
  return "?";
}

std::string_view name_of(DecodeMode mode) {
  switch (mode) {
    case D::single:
      return "single";
    case D::pass_q:
      return "pass_q";
    case D::broadcast_q:
      return "broadcast_q";
    case D::sp:
      return "sp";
    case D::tp:
      return "tp";
    case D::shift:
      return "shift";
  }
  return "?";
}

std::string_view name_of(AttentionExchange mode) {
  switch (mode) {
    case AttentionExchange::pass_kv:
      return "pass_kv";
    case AttentionExchange::pass_q:
      return "pass_q";
    case AttentionExchange::broadcast_q:
      return "broadcast_q";
    case AttentionExchange::levels:
      return "levels";
  }
  return "?";
}

std::string to_string(const Degrees& degrees) {
  std::string text;
  const auto add = [&](const char* name, int degree) {
    if (degree > 1) text += fmt::format("{}{} {}", text.empty() ? "" : " × ", name, degree);
  };
  add("CP", degrees.cp);
  add("SP", degrees.sp);
  add("TP", degrees.tp);
  add("EP", degrees.ep);
  return text;
}

std::span<const ModeRow> mode_table() {
  static const std::vector<ModeRow> table{
      {false, false, false, {P::single}, {D::single}},
      {true, false, false, {P::ring}, {D::pass_q, D::broadcast_q}},
      {false, true, false, {P::ulysses}, {D::sp, D::shift}},
      {false, false, true, {P::tp, P::sp_tp, P::ulysses}, {D::tp}},
      {true, true, false, {P::usp}, {D::pass_q, D::broadcast_q}},
      {true, false, true, {P::ring, P::sp_tp}, {D::pass_q, D::broadcast_q}},
      {false, true, true, {P::ulysses, P::sp_tp}, {D::sp, D::shift}},
      {true, true, true, {P::usp, P::sp_tp}, {D::pass_q, D::broadcast_q}},
  };
  return table;
}

const ModeRow& row_of(const Degrees& degrees) {
  PECIA_CHECK(degrees.cp >= 1 && degrees.sp >= 1 && degrees.tp >= 1, "degrees {} {} {}", degrees.cp,
              degrees.sp, degrees.tp);
  const auto fits = [&](const ModeRow& row) {
    return row.cp == (degrees.cp > 1) && row.sp == (degrees.sp > 1) && row.tp == (degrees.tp > 1);
  };
  return *std::find_if(mode_table().begin(), mode_table().end(), fits);
}

std::string needs(PrefillMode mode) {
  return needs_of(mode);
}
std::string needs(DecodeMode mode) {
  return needs_of(mode);
}

std::optional<Refusal> refusal(const Setting& setting, const ModelShape& whole) {
  const Degrees& degrees = setting.degrees;
  const ModelShape model = cut_shape(degrees, whole);
  const ModeRow& row = row_of(degrees);
  if (auto refused = cp_refusal(setting)) return refused;
  if (auto refused = tp_refusal(setting, model)) return refused;
  if (auto refused = sp_refusal(degrees, model)) return refused;
  if (auto refused = ep_refusal(setting, model)) return refused;
  if (auto refused = mode_refusal("prefill", setting.prefill, row.prefill, degrees)) return refused;
  if (setting.ring && degrees.cp == 1)
    return Refusal{"parallel.ring",
                   fmt::format("parallel.ring {} needs cp above 1, but {}", name_of(*setting.ring),
                               grid_text(degrees)),
                   "ring auto"};

  if (auto refused = gather_threshold_refusal(setting)) return refused;
  if (auto refused = elastic_refusal(setting)) return refused;

  std::vector<DecodeMode> decode = row.decode;
  const auto no_shift =
      has(row, D::shift) ? shift_problem(setting, model) : std::optional<std::string>();
  if (no_shift) std::erase(decode, D::shift);
  if (no_shift && setting.decode == D::shift)
    return Refusal{"parallel.decode", "parallel.decode shift " + *no_shift,
                   choices("decode", decode)};
  if (auto refused = mode_refusal("decode", setting.decode, decode, degrees)) return refused;

  if (!setting.shift_threshold) return {};
  const std::string threshold =
      fmt::format("parallel.shift_threshold {}", *setting.shift_threshold);
  const D resolved =
      setting.decode.value_or(has(row, D::shift) && !no_shift ? D::shift : decode.front());
  if (resolved != D::shift)
    return Refusal{
        "parallel.shift_threshold",
        fmt::format("{} belongs to decode shift, but decode is {}", threshold, name_of(resolved)),
        "shift_threshold auto"};
  if (*setting.shift_threshold < 1)
    return Refusal{"parallel.shift_threshold", threshold + " lets no pass shift",
                   "shift_threshold 1 or more"};
  return {};
}

std::vector<Degrees> grids_of(int ranks) {
  PECIA_CHECK(ranks >= 1, "{} ranks", ranks);
  std::vector<Degrees> grids;
  for (int cp = ranks; cp >= 1; --cp) {
    if (ranks % cp != 0) continue;
    for (int sp = ranks / cp; sp >= 1; --sp)
      if (ranks / cp % sp == 0) grids.push_back({cp, sp, ranks / cp / sp});
  }
  return grids;
}

std::vector<int> expert_degrees(const Degrees& degrees, const ModelShape& model) {
  const int block = degrees.sp * degrees.tp;
  if (model.experts == 0 || block == 1) return {1};
  return {1, block};
}

std::vector<ModePair> legal_modes(int ranks, const ModelShape& model, Reproducible reproducible) {
  std::vector<ModePair> legal;
  for (const Degrees& degrees : grids_of(ranks)) {
    const ModeRow& row = row_of(degrees);
    for (const PrefillMode prefill : row.prefill)
      for (const DecodeMode decode : row.decode)
        for (const int ep : expert_degrees(degrees, model)) {
          const Degrees dealt{degrees.cp, degrees.sp, degrees.tp, ep};
          if (!refusal({dealt, prefill, {}, decode, {}, reproducible}, model))
            legal.push_back({dealt, prefill, decode});
        }
  }
  return legal;
}

bool gathers_weights(const Degrees& degrees, PrefillMode prefill) {
  return prefill == P::ulysses && degrees.sp == 1;
}

int row_ranks(const Degrees& degrees, PrefillMode prefill) {
  const bool over_tp = prefill == P::sp_tp || gathers_weights(degrees, prefill);
  return degrees.cp * degrees.sp * (over_tp ? degrees.tp : 1);
}

int64_t kv_heads_of_rank(const Degrees& degrees, int64_t num_kv_heads) {
  return std::max<int64_t>(1, num_kv_heads / (int64_t{degrees.sp} * degrees.tp));
}

}  // namespace pecia::parallel
