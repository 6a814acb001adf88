// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/tune/tuned_file.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/files/disk/file.hpp"

namespace pecia::tune {
namespace {

using Json = nlohmann::ordered_json;

constexpr double highest_drop = 0.95;
constexpr int64_t most_bytes = 64'000'000;
constexpr int most_ranks = 1 << 20, most_levels = 4, most_micro = 16;

/// One number, or a list by level.
Json json_of(const parallel::Micros& micros) {
  return micros.size() == 1 ? Json(micros.front()) : Json(micros);
}

Json json_of(const Found& found) {
  return {{"drop", found.setting.drop},
          {"deal", name_of(found.setting.deal)},
          {"levels", found.setting.levels},
          {"micro", json_of(found.setting.micros)},
          {"loss", found.loss},
          {"ttft_s", found.ttft_s},
          {"retrieval", found.retrieval}};
}

Json json_of(const FitError& error) {
  return {{"samples", error.samples},
          {"mean_absolute_error", error.mean_absolute},
          {"noise", error.noise},
          {"accuracy", error.accuracy}};
}

Json json_of(const LevelChoice& choice) {
  Json segments = Json::array();
  for (int level = 2; level <= choice.count(); ++level) {
    Json& of_level = segments.emplace_back(Json::array());
    for (int rank = 0; rank < choice.levels.ranks(); ++rank)
      of_level.push_back(choice.levels.segment(level, rank));
  }
  return {{"count", choice.count()}, {"segments", segments}};
}

Json json_of(const Goal& goal) {
  return goal.loss ? Json{{"loss", *goal.loss}} : Json{{"ttft_s", *goal.ttft_s}};
}

Json json_of(const Chosen& chosen) {
  Json oracle;
  if (chosen.oracle)
    oracle = {{"best", json_of(chosen.oracle->best)},
              {"models", chosen.oracle->models ? json_of(*chosen.oracle->models) : Json()},
              {"holds", chosen.oracle->holds},
              {"gap", chosen.oracle->gap}};
  return {{"shortest", chosen.shortest},
          {"longest", chosen.longest},
          {"dense_ttft_s", chosen.dense_ttft_s},
          {"goal", json_of(chosen.goal)},
          {"met", chosen.met},
          {"found", json_of(chosen.found)},
          {"oracle", oracle}};
}

Json json_of(const LossModel::Curve& curve) {
  Json knots = Json::array();
  for (const LossModel::Knot& knot : curve.knots)
    knots.push_back({{"drop", knot.drop}, {"loss", knot.loss}, {"error", knot.error}});
  return {{"levels", curve.levels}, {"deal", name_of(curve.deal)}, {"knots", knots}};
}

Json json_of(const HeldOutGoal& of) {
  return {{"goal", of.goal.loss ? Json{{"loss", *of.goal.loss}}
                                : Json{{"ttft_share_of_dense", *of.goal.ttft_s}}},
          {"prompts", of.prompts},
          {"measured", of.measured},
          {"kept", of.kept}};
}

/// Reads values of one object of the file, and says where one is not as it must be.
class Reader {
 public:
  Reader(const std::filesystem::path& path, const Json& json, std::string where)
      : path_(path), json_(json), where_(std::move(where)) {
    if (!json.is_object()) refuse("is no map");
  }

  [[noreturn]] void refuse(const std::string& why) const {
    fail<InputError>("{}: {} {}; let pecia tune write the file again", path_.string(),
                     where_.empty() ? "the file" : where_, why);
  }
  const Json& at(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) refuse(fmt::format("lacks {}", key));
    return *found;
  }
  Reader in(const char* key) const { return {path_, at(key), name(key)}; }
  bool has(const char* key) const { return json_.contains(key); }
  std::string text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) refuse(fmt::format("has a {} that is no text", key));
    return value.get<std::string>();
  }
  bool flag(const char* key) const {
    const Json& value = at(key);
    if (!value.is_boolean()) refuse(fmt::format("has a {} that is neither true nor false", key));
    return value.get<bool>();
  }
  double number(const char* key, double least, double most = HUGE_VAL) const {
    const Json& value = at(key);
    const double number = value.is_number() ? value.get<double>() : NAN;
    if (!(std::isfinite(number) && number >= least && number <= most))
      refuse(fmt::format("has a {} that is no number in range", key));
    return number;
  }
  int64_t whole(const char* key, int64_t least, int64_t most) const {
    const Json& value = at(key);
    const int64_t number = value.is_number_integer() ? value.get<int64_t>() : least - 1;
    if (number < least || number > most)
      refuse(fmt::format("has a {} that is no whole number from {} to {}", key, least, most));
    return number;
  }
  /// Reads each entry of the list `key`.
  template <typename T>
  std::vector<T> list(const char* key, T (*read)(const Reader&)) const {
    const Json& values = at(key);
    if (!values.is_array()) refuse(fmt::format("has a {} that is no list", key));
    std::vector<T> found;
    for (const Json& value : values)
      found.push_back(read({path_, value, fmt::format("{}[{}]", name(key), found.size())}));
    return found;
  }

 private:
  std::string name(const char* key) const {
    return where_.empty() ? std::string(key) : where_ + "." + key;
  }

  const std::filesystem::path& path_;
  const Json& json_;
  std::string where_;
};

constexpr double lowest = -1e300;
constexpr int64_t most_tokens = int64_t{1} << 40;

std::vector<int> whole_numbers(const Reader& in, const Json& values) {
  if (!values.is_array()) in.refuse("has no list of numbers");
  std::vector<int> numbers;
  for (const Json& value : values) {
    if (!value.is_number_integer()) in.refuse("has something else among whole numbers");
    numbers.push_back(value.get<int>());
  }
  return numbers;
}

parallel::Micros read_micros(const Reader& in) {
  if (!in.at("micro").is_array()) return {static_cast<int>(in.whole("micro", 1, most_micro))};
  parallel::Micros micros = whole_numbers(in, in.at("micro"));
  if (micros.empty() || micros.size() >= most_levels || std::ranges::min(micros) < 1 ||
      std::ranges::max(micros) > most_micro)
    in.refuse(fmt::format("has a micro that is no list of numbers from 1 to {}", most_micro));
  return micros;
}

Deal read_deal(const Reader& in) {
  if (const auto deal = deal_of(in.text("deal"))) return *deal;
  in.refuse("has a deal that is neither even nor spread nor mass");
}

Setting read_setting(const Reader& in) {
  return {in.number("drop", 0, highest_drop), static_cast<int>(in.whole("levels", 2, most_levels)),
          read_micros(in), read_deal(in)};
}

HeadTokens read_head(const Reader& in) {
  HeadTokens head{in.number("spread", 0), {}};
  const Json& lost = in.at("lost");
  if (!lost.is_array() || lost.size() != deal_steps + 1)
    in.refuse(fmt::format("has no {} shares that are lost", deal_steps + 1));
  for (const Json& share : lost) {
    const double value = share.is_number() ? share.get<double>() : NAN;
    if (!(value >= 0 && std::isfinite(value))) in.refuse("has a share that is no number");
    head.lost.push_back(value);
  }
  return head;
}

std::vector<HeadTokens> read_heads(const Reader& in) {
  std::vector<HeadTokens> heads = in.list("heads", read_head);
  if (heads.empty()) in.refuse("has no heads");
  return heads;
}

Json json_of(const LayerTokens& tokens) {
  Json layers = Json::array();
  for (const std::vector<HeadTokens>& of : tokens) {
    Json heads = Json::array();
    for (const HeadTokens& head : of)
      heads.push_back({{"spread", head.spread}, {"lost", head.lost}});
    layers.push_back({{"heads", heads}});
  }
  return layers;
}

Found read_found(const Reader& in) {
  return {read_setting(in), in.number("loss", lowest), in.number("ttft_s", 0),
          in.number("retrieval", 0)};
}

FitError read_error(const Reader& in) {
  return {in.whole("samples", 0, most_tokens), in.number("mean_absolute_error", 0),
          in.number("noise", 0), in.number("accuracy", lowest)};
}

parallel::Levels read_levels(const Reader& in) {
  std::vector<std::vector<int>> segments;
  const Json& levels = in.at("segments");
  if (!levels.is_array() || levels.empty() || levels.size() >= most_levels)
    in.refuse("has no segments of 2 to 4 levels");
  for (const Json& level : levels) {
    segments.push_back(whole_numbers(in, level));
    if (segments.back().empty() || segments.back().size() > most_ranks ||
        segments.back().size() != segments.front().size())
      in.refuse("has segments of unequal numbers of ranks");
  }
  const auto ranks = static_cast<int>(segments.front().size());
  try {
    return {ranks, std::move(segments)};
  } catch (const InvalidArgument&) {
    in.refuse("has segments that are not made of those below");
  }
}

LossModel::Knot read_knot(const Reader& in) {
  return {in.number("drop", 0, highest_drop), in.number("loss", 0), in.number("error", 0)};
}

LossModel::Curve read_curve(const Reader& in) {
  LossModel::Curve curve{static_cast<int>(in.whole("levels", 2, most_levels)),
                         in.list("knots", read_knot), read_deal(in)};
  if (curve.knots.empty()) in.refuse("has no knots");
  for (size_t i = 1; i < curve.knots.size(); ++i)
    if (!(curve.knots[i].drop > curve.knots[i - 1].drop &&
          curve.knots[i].loss >= curve.knots[i - 1].loss))
      in.refuse("has knots that do not grow");
  return curve;
}

HeldOutGoal read_held_out_goal(const Reader& in) {
  HeldOutGoal of{
      {}, in.whole("prompts", 0, most_tokens), in.number("measured", lowest), in.flag("kept")};
  const Reader goal = in.in("goal");
  if (goal.has("loss"))
    of.goal.loss = goal.number("loss", 0);
  else
    of.goal.ttft_s = goal.number("ttft_share_of_dense", 0);
  return of;
}

/// Where tokens do not travel, there are no rates.
TimeFacts read_facts(const Reader& in, bool tokens_travel) {
  constexpr double least = 1e-300;
  const double least_rate = tokens_travel ? least : 0, most_rate = tokens_travel ? HUGE_VAL : 0;
  const Reader shape = in.in("shape"), rates = in.in("rates");
  return {in.whole("layers", 1, most_tokens),
          in.whole("pass_tokens", 1, most_tokens),
          {shape.number("heads", least), shape.number("kv_heads", least),
           shape.number("kv_bytes", least), shape.number("q_bytes", least),
           shape.number("out_bytes", least)},
          {rates.number("attention_flops", least_rate, most_rate),
           rates.number("ring_bandwidth", 0, most_rate),
           rates.number("all_to_all_bandwidth", least_rate, most_rate)}};
}

DenseSample read_dense(const Reader& in) {
  return {in.text("prompt"), in.whole("tokens", 1, most_tokens), in.number("nll", lowest),
          in.number("retrieval", 0, 1), in.number("ttft_s", 0)};
}

Sample read_sample(const Reader& in) {
  return {in.text("prompt"),
          in.whole("tokens", 1, most_tokens),
          read_setting(in),
          in.number("nll", lowest),
          in.number("loss", lowest),
          in.number("loss_error", 0),
          in.number("same_answers", 0, 1),
          in.number("retrieval", 0, 1),
          in.number("ttft_s", 0)};
}

Chosen read_chosen(const Reader& in) {
  Chosen chosen{in.whole("shortest", 1, most_tokens),
                in.whole("longest", 1, most_tokens),
                in.number("dense_ttft_s", 0),
                {},
                in.flag("met"),
                read_found(in.in("found")),
                {}};
  const Reader goal = in.in("goal");
  if (goal.has("loss"))
    chosen.goal.loss = goal.number("loss", 0);
  else
    chosen.goal.ttft_s = goal.number("ttft_s", 0);
  if (in.at("oracle").is_null()) return chosen;
  const Reader oracle = in.in("oracle");
  chosen.oracle =
      Oracle{read_found(oracle.in("best")), {}, oracle.flag("holds"), oracle.number("gap", lowest)};
  if (!oracle.at("models").is_null()) chosen.oracle->models = read_found(oracle.in("models"));
  return chosen;
}

}  // namespace

Json to_json(const Tuned& tuned) {
  const auto list = [](const auto& values, auto write) {
    Json all = Json::array();
    for (const auto& value : values) all.push_back(write(value));
    return all;
  };
  const TimeFacts& facts = tuned.facts;
  return {{"schema", tuned_schema},
          {"version", tuned.version},
          {"model", {{"path", tuned.model_path}, {"config_sha256", tuned.config_sha256}}},
          {"grid", {{"cp", tuned.cp}, {"tp", tuned.tp}}},
          {"geometry", name_of(tuned.geometry)},
          {"levels", list(tuned.levels, [](const LevelChoice& choice) { return json_of(choice); })},
          {"chosen", list(tuned.chosen, [](const Chosen& chosen) { return json_of(chosen); })},
          {"micros", tuned.micros},
          {"held_out_goals",
           list(tuned.held_out_goals, [](const HeldOutGoal& of) { return json_of(of); })},
          {"loss_model",
           {{"shortest", tuned.loss.shortest},
            {"longest", tuned.loss.longest},
            {"middle", tuned.loss.middle},
            {"power", tuned.loss.power},
            {"curves",
             list(tuned.loss.curves, [](const LossModel::Curve& curve) { return json_of(curve); })},
            {"held_out", json_of(tuned.loss_error)}}},
          {"time_model",
           {{"s_per_token", tuned.time.s_per_token},
            {"s_per_dropping_token", tuned.time.s_per_dropping_token},
            {"s_per_pair", tuned.time.s_per_pair},
            {"s_per_byte", tuned.time.s_per_byte},
            {"s_per_near_byte", tuned.time.s_per_near_byte},
            {"s_per_step", tuned.time.s_per_step},
            {"constant_s", tuned.time.constant_s},
            {"held_out", json_of(tuned.time_error)}}},
          {"facts",
           {{"layers", facts.layers},
            {"pass_tokens", facts.pass_tokens},
            {"shape",
             {{"heads", facts.shape.num_heads},
              {"kv_heads", facts.shape.num_kv_heads},
              {"kv_bytes", facts.shape.kv_bytes},
              {"q_bytes", facts.shape.q_bytes},
              {"out_bytes", facts.shape.out_bytes}}},
            {"rates",
             {{"attention_flops", facts.rates.flops},
              {"ring_bandwidth", facts.rates.bandwidth},
              {"all_to_all_bandwidth", facts.rates.all_to_all_bandwidth}}}}},
          {"token_shares", json_of(tuned.layer_tokens)},
          {"dense", list(tuned.dense,
                         [](const DenseSample& sample) {
                           return Json{{"prompt", sample.prompt},
                                       {"tokens", sample.tokens},
                                       {"nll", sample.nll},
                                       {"retrieval", sample.retrieval},
                                       {"ttft_s", sample.ttft_s}};
                         })},
          {"samples", list(tuned.samples, [](const Sample& sample) {
             return Json{{"prompt", sample.prompt},
                         {"tokens", sample.tokens},
                         {"drop", sample.setting.drop},
                         {"deal", name_of(sample.setting.deal)},
                         {"levels", sample.setting.levels},
                         {"micro", json_of(sample.setting.micros)},
                         {"nll", sample.nll},
                         {"loss", sample.loss},
                         {"loss_error", sample.loss_error},
                         {"same_answers", sample.same_answers},
                         {"retrieval", sample.retrieval},
                         {"ttft_s", sample.ttft_s}};
           })}};
}

Tuned parse_tuned(const std::filesystem::path& path, const std::string& text) {
  constexpr int most_depth = 8;
  const Json json = try_json<Json>(text, most_depth);
  if (json.is_discarded())
    fail<InputError>("{}: this is no JSON; name a file that pecia tune wrote", path.string());
  const Reader file(path, json, "");
  if (const std::string schema = file.text("schema"); schema != tuned_schema)
    file.refuse(fmt::format("has another schema than {}", tuned_schema));
  Tuned tuned;
  tuned.version = file.text("version");
  const Reader model = file.in("model"), grid = file.in("grid"), loss = file.in("loss_model"),
               time = file.in("time_model");
  tuned.model_path = model.text("path"), tuned.config_sha256 = model.text("config_sha256");
  tuned.cp = static_cast<int>(grid.whole("cp", 1, most_ranks));
  tuned.tp = static_cast<int>(grid.whole("tp", 1, most_ranks));
  const std::string geometry = file.text("geometry");
  if (geometry == name_of(parallel::Geometry::nested))
    tuned.geometry = parallel::Geometry::nested;
  else if (geometry != name_of(parallel::Geometry::disjoint))
    file.refuse("has a geometry that is neither disjoint nor nested");
  for (parallel::Levels& levels : file.list("levels", read_levels))
    tuned.levels.emplace_back(std::move(levels), tuned.geometry);
  if (tuned.levels.empty()) file.refuse("has no levels");
  for (const LevelChoice& choice : tuned.levels)
    if (choice.levels.ranks() != parallel::level_parts(tuned.cp, tuned.tp))
      file.refuse("has levels of another number of ranks");
  tuned.micros = whole_numbers(file, file.at("micros"));
  if (tuned.micros.empty() || std::ranges::min(tuned.micros) < 1 ||
      std::ranges::max(tuned.micros) > most_micro)
    file.refuse(fmt::format("has no micros from 1 to {}", most_micro));
  tuned.chosen = file.list("chosen", read_chosen);
  tuned.held_out_goals = file.list("held_out_goals", read_held_out_goal);
  tuned.loss.shortest = loss.whole("shortest", 1, most_tokens);
  tuned.loss.longest = loss.whole("longest", tuned.loss.shortest, most_tokens);
  tuned.loss.middle = loss.number("middle", 1), tuned.loss.power = loss.number("power", -1, 1);
  tuned.loss.curves = loss.list("curves", read_curve);
  tuned.loss_error = read_error(loss.in("held_out"));
  tuned.facts = read_facts(file.in("facts"), tuned.cp > 1);
  tuned.time = {time.number("s_per_token", 0),     time.number("s_per_dropping_token", 0),
                time.number("s_per_pair", 0),      time.number("s_per_byte", 0),
                time.number("s_per_near_byte", 0), time.number("s_per_step", 0),
                time.number("constant_s", 0),      tuned.facts};
  tuned.time_error = read_error(time.in("held_out"));
  tuned.dense = file.list("dense", read_dense);
  tuned.samples = file.list("samples", read_sample);
  for (const Sample& sample : tuned.samples)
    if (std::ranges::find(tuned.dense, sample.prompt, &DenseSample::prompt) == tuned.dense.end())
      file.refuse(fmt::format("has no dense sample of prompt {}", sample.prompt));
  if (tuned.samples.empty()) file.refuse("has no samples");
  tuned.layer_tokens = file.list("token_shares", read_heads);
  if (!tuned.layer_tokens.empty() && std::ssize(tuned.layer_tokens) != tuned.facts.layers)
    file.refuse("has token_shares of another number of layers");
  tuned.missed = fit_missed(tuned.dense, tuned.samples, no_drop_of(tuned.geometry));
  for (const LevelChoice& choice : tuned.levels)
    for (const Deal deal : tuned.candidates().deals) {
      if (tuned.loss.find(choice.count(), deal) == nullptr)
        loss.refuse(fmt::format("has no curve of {} levels by {}", choice.count(), name_of(deal)));
      if (tuned.missed.find(choice.count(), deal) == nullptr)
        file.refuse(
            fmt::format("has no samples of {} levels by {}", choice.count(), name_of(deal)));
      if (deal != Deal::even && tuned.layer_tokens.empty())
        file.refuse("has no token_shares, by which its samples are dealt out");
    }
  tuned.make_deals();
  return tuned;
}

Tuned read_tuned(const std::filesystem::path& path) {
  const io::File file = io::File::open_input(path);
  if (file.size() > most_bytes)
    fail<InputError>("{} has {} bytes, and a tuned file at most {}", path.string(), file.size(),
                     most_bytes);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return parse_tuned(path, text);
}

}  // namespace pecia::tune
