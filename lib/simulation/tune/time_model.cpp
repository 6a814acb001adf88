// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/tune/time_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "lib/base/core/error.hpp"
#include "lib/simulation/tune/regression.hpp"

namespace pecia::tune {
namespace {

/// Calls `use` with the tokens that each rank has of each pass.
template <typename Use>
void for_each_pass(const TimeFacts& facts, int64_t tokens, int ranks, const Use& use) {
  for (int64_t begin = 0; begin < tokens; begin += facts.pass_tokens) {
    const int64_t rows = std::min(facts.pass_tokens, tokens - begin);
    use(parallel::RankTokens{static_cast<double>(rows) / ranks,
                             static_cast<double>(begin) / ranks});
  }
}

struct Speeds {
  double s_per_pair, s_per_byte, s_per_near_byte;
};

/// The layers' pipeline times at these speeds.
double layers_s(const TimeFacts& facts, int64_t tokens, const Setting& setting,
                const LevelChoice& choice, const Speeds& speeds) {
  parallel::LevelRates rates{speeds.s_per_pair,
                             std::vector<double>(choice.loads.size(), speeds.s_per_near_byte)};
  rates.s_per_byte.back() = speeds.s_per_byte;
  const auto sparse = static_cast<double>(sparse_layers(facts.layers));
  double sum = 0;
  for_each_pass(facts, tokens, choice.levels.ranks(), [&](const parallel::RankTokens& of_rank) {
    const auto layer = [&](const parallel::LevelRule& rule) {
      return layer_s(choice.loads, rule, of_rank, facts.shape, rates, setting.micros);
    };
    sum += (static_cast<double>(facts.layers) - sparse) * layer({});
    if (setting.deal == Deal::even || setting.drop == 0) {
      sum += sparse * layer({{}, setting.drop});
      return;
    }
    PECIA_CHECK(facts.deals, "a deal by {} of unknown layers", name_of(setting.deal));
    parallel::SparseSetting of;
    of.rule.drop = setting.drop;
    of.layer_drops = facts.deals->of(setting.deal, setting.drop);
    for (int64_t place = 1; place + 1 < facts.layers; ++place) {
      const auto heads = std::ssize(of.layer_drops.at(static_cast<size_t>(place)));
      sum += layer(of.rule_of(place, facts.layers, 0, heads));
    }
  });
  return sum;
}

double steps_of(const TimeFacts& facts, int64_t tokens, const Setting& setting,
                const LevelChoice& choice) {
  const int64_t passes = (tokens + facts.pass_tokens - 1) / facts.pass_tokens;
  int64_t steps = 0;
  for (int level = 2; level <= choice.count(); ++level)
    steps += parallel::micro_at(setting.micros, level);
  return static_cast<double>(passes * facts.layers * steps);
}

/// How much longer bytes take beside pairs than was measured.
struct Ratios {
  double all = 1, near = 1;
};

/// The model with these ratios, and the sum of its squared relative errors.
std::pair<TimeModel, double> fit_with(const Ratios& ratios, const std::vector<Sample>& samples,
                                      const std::vector<LevelChoice>& choices,
                                      const TimeFacts& facts) {
  constexpr double ridge = 1e-9;
  Speeds speeds{1e-9, 0, 0};  // a factor of them is fitted
  if (facts.tokens_travel()) {
    const double s_per_byte = 1 / facts.rates.all_to_all_bandwidth;
    speeds = {4 / facts.rates.flops, ratios.all * s_per_byte, ratios.near * s_per_byte};
  }
  std::vector<std::vector<double>> rows;
  std::vector<double> targets;
  for (const Sample& sample : samples) {
    const LevelChoice* choice = find(choices, sample.setting.levels);
    PECIA_CHECK(choice != nullptr, "a sample with {} levels", sample.setting.levels);
    PECIA_CHECK(sample.ttft_s > 0, "a first token after {} s", sample.ttft_s);
    const auto tokens = static_cast<double>(sample.tokens);
    std::vector<double>& row = rows.emplace_back(
        std::vector<double>{tokens, sample.setting.drop > 0 ? tokens : 0,
                            layers_s(facts, sample.tokens, sample.setting, *choice, speeds),
                            steps_of(facts, sample.tokens, sample.setting, *choice), 1});
    for (double& term : row) term /= sample.ttft_s;
    targets.push_back(1);
  }
  const std::vector<double> found = fit_nonnegative(rows, targets, ridge);
  double squares = 0;
  for (const auto& row : rows) {
    double off = -1;
    for (size_t i = 0; i < row.size(); ++i) off += found[i] * row[i];
    squares += off * off;
  }
  return {{found[0], found[1], found[2] * speeds.s_per_pair, found[2] * speeds.s_per_byte,
           found[2] * speeds.s_per_near_byte, found[3], found[4], facts},
          squares};
}

}  // namespace

int64_t sparse_layers(int64_t layers) {
  return std::max<int64_t>(0, layers - 2);
}

double TimeModel::ttft_s(int64_t tokens, const Setting& setting, const LevelChoice& choice) const {
  const auto length = static_cast<double>(tokens);
  return (s_per_token + (setting.drop > 0 ? s_per_dropping_token : 0)) * length +
         layers_s(facts, tokens, setting, choice, {s_per_pair, s_per_byte, s_per_near_byte}) +
         s_per_step * steps_of(facts, tokens, setting, choice) + constant_s;
}

double TimeModel::dense_ttft_s(int64_t tokens, int ranks) const {
  const auto length = static_cast<double>(tokens);
  return s_per_token * length + constant_s +
         s_per_pair * facts.shape.num_heads * static_cast<double>(facts.layers) * length * length /
             2 / ranks;
}

TimeModel TimeModel::with(const parallel::RingRates& rates) const {
  TimeModel model = *this;
  model.s_per_pair *= facts.rates.flops / rates.flops;
  const double slower = facts.rates.all_to_all_bandwidth / rates.all_to_all_bandwidth;
  model.s_per_byte *= slower, model.s_per_near_byte *= slower;
  model.facts.rates = rates;
  return model;
}

bool TimeModel::is_of(const parallel::RingRates& rates) const {
  constexpr double wavers = 1.5;
  const auto near = [](double a, double b) { return a <= wavers * b && b <= wavers * a; };
  return near(rates.flops, facts.rates.flops) &&
         near(rates.all_to_all_bandwidth, facts.rates.all_to_all_bandwidth);
}

TimeModel fit_time(const std::vector<Sample>& samples, const std::vector<LevelChoice>& choices,
                   const TimeFacts& facts) {
  PECIA_CHECK((facts.rates.flops > 0) == facts.tokens_travel() && facts.pass_tokens >= 1,
              "{} FLOP/s, {} B/s, passes of {} tokens", facts.rates.flops,
              facts.rates.all_to_all_bandwidth, facts.pass_tokens);
  constexpr double gain = 0.95;
  auto [best, squares] = fit_with({}, samples, choices, facts);
  if (!facts.tokens_travel()) return best;
  for (const double all : {1.0, 0.0, 0.125, 0.25, 0.5, 2.0, 4.0, 8.0, 16.0, 32.0})
    for (const double nearer : {1.0, 0.25, 0.0625}) {
      auto [model, of_model] = fit_with({all, all * nearer}, samples, choices, facts);
      if (of_model < gain * squares) best = model, squares = of_model;
    }
  return best;
}

}  // namespace pecia::tune
