// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/papers/measured_figures.hpp"

namespace pecia::simulation::papers {
namespace {

constexpr const char* modes_page = "apps/results/epyc-2cores-modes.md";
constexpr const char* xeon_page = "apps/results/xeon-emerald-rapids-2cores.md";
constexpr const char* zen4_page = "apps/results/epyc-zen4-2cores.md";
constexpr const char* zen3_page = "apps/results/epyc-zen3-2cores.md";
constexpr const char* zen5 = "two cores of a Zen 5, ";
constexpr const char* xeon = "two cores of an Emerald Rapids, ";

Row measured(std::string what, std::string setting, std::optional<double> published, double ours,
             std::string note, std::string command, std::string machine, const char* commit,
             const char* page) {
  return {.what = std::move(what),
          .setting = std::move(setting),
          .published = published,
          .ours = ours,
          .how = How::measured,
          .note = std::move(note),
          .command = std::move(command),
          .measured_on = machine + commit,
          .page = page};
}

std::vector<MeasuredFigure> of_rings() {
  return {
      {"CP",
       measured("share of its speed alone that a rank keeps", "8192 tokens, CP 2, 111M parameters",
                0.93, 1031.0 / 1062,
                "published of 1 000 000 tokens on 16 hosts, beside the attention kernel alone",
                "scripts/bench modes local", zen5, "343ba9a", modes_page),
       {"1062", "1031, 97 %"}},
      {"CP",
       measured("bytes that pass-KV sends, by the formula", "2048 tokens, CP 2", 1, 1024.0 / 1024,
                "the tests hold rings and pass-Q to the formulas as well",
                "scripts/bench modes local", zen5, "343ba9a", modes_page),
       {"0.9 % | 1031, 97 %, 0.1 % | 12464, 99 %, 0.4 % | 1024 |",
        "CP sends (N−1) · 2 · Hkv · D · 2 B = 1024 bytes"}},
      {"CP",
       measured("cells where the rule names the faster of pass-KV and pass-Q",
                "P + T = 8192, 1 to 100 % new, CP 4 over 400 Mbit/s", {}, 8.0 / 9,
                "published figure not at hand; rule B, which is undecided in the ninth cell",
                "scripts/bench modes net", zen5, "9df3f884b3", modes_page),
       {"| 1638 | 20 % | 337 | 398 | pass_kv | 18 % | pass_kv or pass_q | undecided |"}},
  };
}

std::vector<MeasuredFigure> of_levels() {
  constexpr const char* command =
      "scripts/bench accuracy --ranks 4 --threads 1 --tokens 2048, attention.drop=0.2";
  constexpr const char* setting = "20 % dropped, {} levels, 2048 tokens on 4 ranks, SmolLM2-135M";
  constexpr const char* commit = "a6fdeadf";
  const auto named = [](const char* geometry) {
    std::string text = setting;
    return text.replace(text.find("{}"), 2, geometry);
  };
  const char* const smaller = "published with 22 % dropped, as times of GLM-4-9B";
  const char* const loss = "published: no loss with 22 % dropped, at NeedleBench and BookCorpus";
  std::vector<MeasuredFigure> figures;
  struct OfGeometry {
    const char *name, *loss, *pairs, *bytes, *row;
    double loss_nats, kept_pairs, sent_mb;
  };
  for (const OfGeometry& of : {OfGeometry{"nested", "0.2363", "92 %", "226.3",
                                          "nested | 0.2363 ± 0.0227 |", 0.2363, 0.92, 226.3},
                               OfGeometry{"disjoint", "0.0128", "75 %", "228.5",
                                          "disjoint | 0.0128 ± 0.0035 |", 0.0128, 0.75, 228.5}}) {
    figures.push_back({"CSPS",
                       measured("pairs of attention, by dense", named(of.name), 1 - 0.28,
                                of.kept_pairs, smaller, command, xeon, commit, xeon_page),
                       {of.row, of.pairs}});
    figures.push_back({"CSPS",
                       measured("bytes of messages, by Ulysses'", named(of.name), 1 - 0.19,
                                of.sent_mb / 306.7, smaller, command, xeon, commit, xeon_page),
                       {of.row, of.bytes, "306.7"}});
    Row lost = measured("loss by likelihood", named(of.name), {}, of.loss_nats, loss, command, xeon,
                        commit, xeon_page);
    lost.unit = "nats a token";
    figures.push_back({"CSPS", std::move(lost), {of.row, of.loss}});
  }
  figures.push_back(
      {"CSPS",
       measured("needles found, by dense's", "20 % dropped, 1900 tokens on 4 ranks, SmolLM2-135M",
                1, 5.0 / 5, "published: no loss with 22 % dropped; five needles",
                "scripts/bench needle --ranks 4", xeon, commit, xeon_page),
       {"| 20 % dropped | 5 | all | 75 % |", "| dense | 5 | all | 100 % |"}});
  figures.push_back(
      {"CSPS",
       measured(
           "tokens dropped at no loss by likelihood", "SmolLM2-135M on 2 ranks", 0.22, 0.2,
           "30 % lose 0.0006 ± 0.0018 nats a token there, too, but fewer passages are recalled "
           "(61 % for 67), and on 4 ranks 13 % lose 0.010",
           "scripts/bench accuracy --ranks 2", "two cores of a Zen 4, ", "51eb3ff", zen4_page),
       {"20 % −0.0004 ± 0.0012", "61 of dense attention's 67 %"}});
  return figures;
}

std::vector<MeasuredFigure> of_services() {
  std::vector<MeasuredFigure> figures;
  const auto add = [&](const char* paper, const char* what, const char* setting,
                       std::optional<double> published, double ours, const char* note,
                       const char* command, std::string machine, const char* commit,
                       const char* page, std::vector<const char*> stands) {
    figures.push_back(
        {paper,
         measured(what, setting, published, ours, note, command, std::move(machine), commit, page),
         std::move(stands)});
  };
  const char* const trace_note = "published on the paper's traces; 40 requests in bursts here";
  const char* const not_at_hand = "published figure not at hand; 40 requests in bursts";
  const char* const trace = "scripts/bench trace";
  add("Shift", "throughput of shift by TP's", "two ranks, a link of 1000 Mbit/s", 1.5, 831.0 / 737,
      trace_note, trace, zen5, "896763dc7f", modes_page,
      {"| 831 (825, 837) |", "| 737 (757, 717) |"});
  add("Shift", "TPOT of shift by TP's", "two ranks of one machine", {}, 16.0 / 15, not_at_hand,
      trace, zen5, "390c55a962", modes_page,
      {"| local | SP+shift | 573, 3700, 3854 | 16,", "| local | TP | 583, 3189, 3343 | 15,"});
  add("Shift", "throughput of shift by DP's", "two ranks of one machine", {}, 1291.0 / 1089,
      not_at_hand, trace, zen5, "390c55a962", modes_page,
      {"| 1291 (1248, 1334) |", "| 1089 (1039, 1139) |"});
  add("ESP", "goodput by that of the best static grid, mixed", "two ranks of one machine, bursts",
      2.33, 1.62, "published of static SP × TP on 8 GPUs, at most",
      "scripts/bench elastic local --tokens 20000", "two cores of a Zen 3, ", "8029f64dd7",
      zen3_page, {"Mixed goodput is 1.62 times the best static grid's"});
  return figures;
}

}  // namespace

std::vector<MeasuredFigure> measured_figures() {
  std::vector<MeasuredFigure> all = of_rings();
  for (auto* const of : {&of_levels, &of_services})
    for (MeasuredFigure& figure : of()) all.push_back(std::move(figure));
  return all;
}

void add_measured(Paper& paper) {
  for (MeasuredFigure& figure : measured_figures())
    if (figure.paper == paper.name) paper.rows.push_back(std::move(figure.row));
}

}  // namespace pecia::simulation::papers
