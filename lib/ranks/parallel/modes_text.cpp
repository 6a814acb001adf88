// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/modes_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace pecia::parallel {
namespace {

using Json = nlohmann::ordered_json;

template <typename Mode>
std::string joined(const std::vector<Mode>& modes) {
  std::string text;
  for (const Mode mode : modes)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", name_of(mode));
  return text;
}

template <typename Mode>
Json names(const std::vector<Mode>& modes) {
  Json list = Json::array();
  for (const Mode mode : modes) list.push_back(std::string(name_of(mode)));
  return list;
}

const char* degree(bool above) {
  return above ? ">1" : "1";
}

const char* meaning(PrefillMode mode) {
  switch (mode) {
    case PrefillMode::single:
      return "one rank has everything";
    case PrefillMode::ring:
      return "each sequence's tokens are cut over CP; keys and values, or queries, go round";
    case PrefillMode::ulysses:
      return "rows are cut, an all-to-all gives each rank its heads of all rows; with SP 1 the "
             "rows are cut over TP and each layer's weights are gathered first, but passes of "
             "fewer than `gather_threshold` new tokens are sp_tp";
    case PrefillMode::usp:
      return "ulysses inside SP, ring across CP";
    case PrefillMode::sp_tp:
      return "as tp with rows cut over TP too: all-gather and reduce-scatter in place of "
             "all-reduce";
    case PrefillMode::tp:
      return "all ranks have all rows and a slice of the weights; sums by all-reduce";
  }
  return "";
}

const char* meaning(DecodeMode mode) {
  switch (mode) {
    case DecodeMode::single:
      return "one rank has everything";
    case DecodeMode::pass_q:
      return "queries go round the ring, partial outputs come home by all-to-all";
    case DecodeMode::broadcast_q:
      return "queries are sent to all of CP at once, partial outputs are merged";
    case DecodeMode::sp:
      return "a step's sequences are cut over SP, heads move by all-to-all";
    case DecodeMode::tp:
      return "all ranks have all rows and a slice of the weights";
    case DecodeMode::shift:
      return "passes of at most `shift_threshold` new tokens run as TP over SP × TP ranks, the "
             "others "
             "as sp, on one KV cache";
  }
  return "";
}

template <typename Modes>
std::string meanings(const char* key, const Modes& modes) {
  std::string text = fmt::format("| `{}` | what it does | needs |\n|---|---|---|\n", key);
  for (const auto mode : modes)
    text += fmt::format("| {} | {} | {} |\n", name_of(mode), meaning(mode), needs(mode));
  return text;
}

/// The pairs to say something about on a grid: `single` is none but on one rank.
std::vector<PrefillMode> prefill_candidates(const Degrees& degrees) {
  std::vector<PrefillMode> modes(named_prefill_modes.begin(), named_prefill_modes.end());
  if (degrees.ranks() == 1) modes.insert(modes.begin(), PrefillMode::single);
  return modes;
}
std::vector<DecodeMode> decode_candidates(const Degrees& degrees) {
  std::vector<DecodeMode> modes(named_decode_modes.begin(), named_decode_modes.end());
  if (degrees.ranks() == 1) modes.insert(modes.begin(), DecodeMode::single);
  return modes;
}

}  // namespace

std::string modes_markdown() {
  std::string text =
      "# Parallel modes\n"
      "Printed by `pecia plan --modes`; `pecia plan JOB.yaml --modes` says it for a job's "
      "model.\n\n"
      "Ranks = DP · PP · CP · SP · TP. DP replicas run requests of their own, and the PP stages of "
      "a replica have layers of\ntheir own, both with every mode; stages have no teams that change "
      "and no levels. In one stage CP cuts the\ntokens of the KV cache, SP the rows of a pass, TP "
      "the weights; the heads of the KV cache are cut over SP · TP.\nEvery prefill mode of a row "
      "goes with every decode "
      "mode "
      "of that row; nothing else is legal.\n\n"
      "| cp | sp | tp | prefill | decode |\n|---|---|---|---|---|\n";
  for (const ModeRow& row : mode_table())
    text += fmt::format("| {} | {} | {} | {} | {} |\n", degree(row.cp), degree(row.sp),
                        degree(row.tp), joined(row.prefill), joined(row.decode));
  text += "\n`single` is what `auto` is called on one rank; a job cannot ask for it.\n\n";
  text += meanings("prefill", named_prefill_modes) + "\n" + meanings("decode", named_decode_modes);
  text +=
      "\nWith `cp: elastic` a replica's CP instances (SP × TP blocks) form teams that change from "
      "pass to pass: a\n"
      "request takes as many as it needs. Prefill is the row's, ring pass_kv, decode broadcast_q.\n"
      "It does not go with `reproducible: layout`, as teams follow from what else runs.\n"
      "\nWith `phases: apart` some of CP's instances (SP × TP blocks) read prompts and the others "
      "answer, with cp\nelastic or not. Both sides have the row's prefill, ring pass_kv, decode "
      "broadcast_q, and what does not go\nwith cp elastic does not go with it.\n"
      "\nWith `attention.sparse: csa` the ranks of SP hold parts of the tokens as those of CP do, "
      "so "
      "CP · SP counts as\nCP: prompts with at least 128 new tokens on each of them are attended by "
      "levels, in the place of prefill ring,\nulysses and usp, and shorter ones go round the ring. "
      "Decode is pass_q or broadcast_q. Layers with a sliding\nwindow go round the ring.\n"
      "\nWith csa and CP · SP = 1 each rank of TP attends all tokens for its heads, so levels save "
      "work and no bytes. A\nsequence counts as cut into parts, one for each rank of TP, and "
      "prompts with at least 128 new tokens for each\npart are attended by levels. Prefill is tp, "
      "sp_tp or ulysses, and decode is tp. Layers with a sliding window are\nattended as without "
      "csa. On one rank nothing is dropped.\n"
      "\ncsa does not go with cp elastic (levels follow from places, and teams change), policy "
      "chunked and\n`reproducible: layout` (what is dropped depends on the pass and the layout), "
      "ring pass_q (keys travel), and decode\nsp or shift (keys stay with their tokens).\n"
      "\n`ring` (pass_kv, pass_q) needs cp above 1; `shift_threshold`, 1 or more, needs decode "
      "shift;\n`gather_threshold`, 1 or more, needs prefill ulysses with SP 1.\n\n"
      "Of the model, with P = SP · TP:\n"
      "- P divides the query heads.\n"
      "- P divides the KV heads, or the KV heads divide P: then P / heads ranks hold the same "
      "one.\n"
      "- TP divides the KV heads, or they divide TP; TP divides the FFN's columns.\n"
      "- With decode shift, P divides the FFN's columns.\n\n"
      "With `ep: P` a mixture's experts are dealt out whole over the SP × TP ranks, instead of\n"
      "being cut by TP (expert parallelism). It goes with every row and pair of modes, with cp\n"
      "elastic and csa, and needs P experts or more. The columns of experts then need not be\n"
      "divisible. Where SP cuts rows, and with ulysses over TP, each row travels once to each "
      "rank\n"
      "that holds experts of it, and the sums come back. With shift, and where SP is 1, all ranks\n"
      "have the rows, and the results are added like TP's. `reproducible: layout` needs ep 1. "
      "With\n"
      "csa, P is TP.\n\n"
      "`reproducible: layout`, the same bits on all of them, takes every mode of the table with\n"
      "- cp 1, 2, 4 or 8;\n"
      "- TP, and P with decode shift, that divides 8, the query heads and the FFN's columns;\n"
      "- any SP.\n";
  return text;
}

Json modes_json() {
  Json rows = Json::array();
  for (const ModeRow& row : mode_table())
    rows.push_back({{"cp", degree(row.cp)},
                    {"sp", degree(row.sp)},
                    {"tp", degree(row.tp)},
                    {"prefill", names(row.prefill)},
                    {"decode", names(row.decode)}});
  return {{"modes", rows}};
}

std::string modes_text(int ranks, const ModelShape& model, Reproducible reproducible) {
  const bool experts = model.experts > 0;
  const auto column = [&](const auto& ep) {
    return experts ? fmt::format(" {:>6}", ep) : std::string();
  };
  std::string text = fmt::format("{:>6} {:>6} {:>6}{}  {:<20} {}\n", "cp", "sp", "tp", column("ep"),
                                 "prefill", "decode");
  for (const Degrees& grid : grids_of(ranks))
    for (const int ep : expert_degrees(grid, model)) {
      const Degrees degrees{grid.cp, grid.sp, grid.tp, ep};
      text += fmt::format("{:>6} {:>6} {:>6}{}  ", degrees.cp, degrees.sp, degrees.tp, column(ep));
      if (const auto refused = refusal({degrees, {}, {}, {}, {}, reproducible}, model)) {
        text += fmt::format("none: {}\n", refused->text());
        continue;
      }
      const ModeRow& row = row_of(degrees);
      std::vector<DecodeMode> legal;
      std::string reasons;
      for (const DecodeMode decode : row.decode) {
        const auto refused = refusal({degrees, {}, {}, decode, {}, reproducible}, model);
        if (refused)
          reasons += fmt::format("; {}", refused->text());
        else
          legal.push_back(decode);
      }
      text += fmt::format("{:<20} {}{}\n", joined(row.prefill), joined(legal), reasons);
    }
  return text;
}

Json modes_json(int ranks, const ModelShape& model, Reproducible reproducible) {
  Json pairs = Json::array();
  for (const Degrees& grid : grids_of(ranks))
    for (const int ep : expert_degrees(grid, model)) {
      const Degrees degrees{grid.cp, grid.sp, grid.tp, ep};
      for (const PrefillMode prefill : prefill_candidates(degrees))
        for (const DecodeMode decode : decode_candidates(degrees)) {
          const auto refused = refusal({degrees, prefill, {}, decode, {}, reproducible}, model);
          pairs.push_back({{"cp", degrees.cp},
                           {"sp", degrees.sp},
                           {"tp", degrees.tp},
                           {"ep", degrees.ep},
                           {"prefill", std::string(name_of(prefill))},
                           {"decode", std::string(name_of(decode))},
                           {"legal", !refused},
                           {"reason", refused ? Json(refused->text()) : Json()}});
        }
    }
  return pairs;
}

}  // namespace pecia::parallel
