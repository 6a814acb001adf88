// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/mode_choice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::parallel {
namespace {

/// From this many ranks on, one broadcast of the queries has fewer steps, one after another, than
/// their way round the ring.
constexpr int broadcast_from_cp = 4;

/// Of tp, sp_tp and ulysses, where weights are cut and nothing else.
PrefillMode choose_with_tp_alone(const Degrees& degrees, const ModelShape& model, int64_t tokens,
                                 std::string& why) {
  if (tokens < degrees.tp) {
    why = fmt::format("a pass of {} tokens has no row for each of {} ranks", tokens, degrees.tp);
    return PrefillMode::tp;
  }
  const auto threshold = gather_threshold(moved_shape(degrees, model), degrees.tp);
  const bool gathers = threshold && tokens >= *threshold;
  why = gathers ? fmt::format(
                      "from {} tokens on gathering the weights moves less than gathering the "
                      "rows, as sp_tp does in shorter passes",
                      *threshold)
                : fmt::format(
                      "in passes of {} tokens gathering the weights moves no less than "
                      "gathering the rows",
                      tokens);
  return gathers ? PrefillMode::ulysses : PrefillMode::sp_tp;
}

PrefillMode choose_prefill(const Degrees& degrees, const ModelShape& model, int64_t tokens,
                           std::string& why) {
  const ModeRow& row = row_of(degrees);
  if (row.prefill.size() == 1) {
    why = "the only one for " + to_string(degrees);
    return row.prefill.front();
  }
  if (degrees.cp == 1 && degrees.sp == 1) return choose_with_tp_alone(degrees, model, tokens, why);
  for (const PrefillMode mode : {PrefillMode::ring, PrefillMode::ulysses, PrefillMode::usp})
    if (std::find(row.prefill.begin(), row.prefill.end(), mode) != row.prefill.end()) {
      why = "sp_tp moves as much and saves only memory of activations";
      return mode;
    }
  fail<InvalidArgument>("no rule for the prefill of {}", to_string(degrees));
}

DecodeMode choose_decode(const Setting& setting, const ModelShape& model, std::string& why) {
  const Degrees& degrees = setting.degrees;
  const ModeRow& row = row_of(degrees);
  if (row.decode.size() == 1) {
    why = "the only one for " + to_string(degrees);
    return row.decode.front();
  }
  if (degrees.cp >= broadcast_from_cp) {
    why = fmt::format("fewer serial steps than pass_q from CP {} on", broadcast_from_cp);
    return DecodeMode::broadcast_q;
  }
  if (degrees.cp > 1) {
    why = fmt::format("no more serial steps than broadcast_q below CP {}", broadcast_from_cp);
    return DecodeMode::pass_q;
  }
  Setting shifting = setting;
  shifting.decode = DecodeMode::shift;
  if (refusal(shifting, model)) {
    const int64_t ranks = int64_t{degrees.sp} * degrees.tp;
    why = model.ffn % ranks != 0
              ? fmt::format("shift would cut the FFN's {} columns over {} ranks", model.ffn, ranks)
              : fmt::format("shift over {} ranks would not keep reproducible: layout", ranks);
    return DecodeMode::sp;
  }
  why = fmt::format("heads and FFN can be cut over all {} ranks when few tokens run",
                    int64_t{degrees.sp} * degrees.tp);
  return DecodeMode::shift;
}

}  // namespace

std::optional<int64_t> gather_threshold(const ModelShape& model, int tp) {
  PECIA_CHECK(tp >= 1, "{} ranks", tp);
  // Whole numbers in floating point: a layer of a wide model, times the ranks, stays below 2^53.
  const double hidden = static_cast<double>(model.hidden), ranks = tp;
  const auto ffn = static_cast<double>(model.all_ffn > 0 ? model.all_ffn : model.ffn);
  const double head_dim = static_cast<double>(model.head_dim);
  const double heads = static_cast<double>(model.num_heads);
  const double kv_heads = static_cast<double>(model.num_kv_heads);
  const double of_attention = model.attention_weights > 0
                                  ? static_cast<double>(model.attention_weights)
                                  : hidden * 2 * (heads + kv_heads) * head_dim;
  const double weights = of_attention + hidden * static_cast<double>(model.ffn_matrices) * ffn;
  const double moved_heads = 2 * (heads + std::max(kv_heads, ranks)) * head_dim;  // of a token
  const double moved_rows = (model.ffn == 0 ? 2 : 4) * hidden * ranks;
  if (moved_rows <= moved_heads) return {};
  return static_cast<int64_t>(weights * ranks / (moved_rows - moved_heads)) + 1;
}

ModelShape moved_shape(const Degrees& degrees, ModelShape model) {
  if (degrees.ep > 1) model.ffn = model.all_ffn = 0;
  return model;
}

ModeChoice choose_modes(const Setting& setting, const ModelShape& model, int64_t max_batch_tokens) {
  ModeChoice choice{setting.prefill.value_or(PrefillMode::single),
                    setting.ring,
                    setting.decode.value_or(DecodeMode::single),
                    setting.gather_threshold,
                    {}};
  if (setting.degrees.ranks() == 1) return choice;
  const auto add = [&](std::string_view what, std::string_view mode, const std::string& why) {
    choice.reasons.add(fmt::format("{} {}: {}", what, mode, why));
  };
  std::string why;
  if (!setting.prefill) {
    choice.prefill = choose_prefill(setting.degrees, model, max_batch_tokens, why);
    if (gathers_weights(setting.degrees, choice.prefill))
      choice.gather_threshold =
          gather_threshold(moved_shape(setting.degrees, model), setting.degrees.tp);
    add("prefill", name_of(choice.prefill), why);
  }
  if (setting.elastic) {
    choice.ring = AttentionExchange::pass_kv;
    choice.decode = DecodeMode::broadcast_q;
    add("ring and decode", "pass_kv+broadcast_q", "what elastic teams need");
    return choice;
  }
  if (!setting.ring && setting.degrees.cp > 1)
    add("ring", "auto", "by the cached share of each turn");
  if (!setting.decode) {
    choice.decode = choose_decode(setting, model, why);
    add("decode", name_of(choice.decode), why);
  }
  return choice;
}

}  // namespace pecia::parallel
