// SPDX-License-Identifier: Apache-2.0
#include "lib/tune/tuned_file.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "lib/core/error.hpp"
#include "lib/core/json.hpp"
#include "lib/io/file.hpp"

namespace pecia::tune {
namespace {

using Json = nlohmann::ordered_json;

constexpr double highest_drop = 0.95;
constexpr int64_t most_bytes = 64'000'000;
constexpr int most_ranks = 1 << 20, most_levels = 4;

Json json_of(const Found& found) {
  return {{"drop", found.setting.drop},
          {"levels", found.setting.levels},
          {"loss", found.loss},
          {"ttft_s", found.ttft_s}};
}

Json json_of(const FitError& error) {
  return {{"samples", error.samples},
          {"mean_absolute_error", error.mean_absolute},
          {"large_samples", error.large_samples},
          {"accuracy", error.accuracy}};
}

Json json_of(const LevelChoice& choice) {
  Json segments = Json::array();
  for (int level = 2; level <= choice.count(); ++level) {
    Json& of_level = segments.emplace_back(Json::array());
    for (int rank = 0; rank < choice.levels.ranks(); ++rank)
      of_level.push_back(choice.levels.segment(level, rank));
  }
  return {{"count", choice.count()}, {"segments", segments}, {"shares", choice.shares}};
}

Json json_of(const Chosen& chosen) {
  Json oracle;
  if (chosen.oracle)
    oracle = {{"best", json_of(chosen.oracle->best)},
              {"models", chosen.oracle->models ? json_of(*chosen.oracle->models) : Json()},
              {"holds", chosen.oracle->holds},
              {"gap", chosen.oracle->gap}};
  const Goal& goal = chosen.goal;
  return {{"shortest", chosen.shortest},
          {"longest", chosen.longest},
          {"dense_ttft_s", chosen.dense_ttft_s},
          {"goal", goal.loss ? Json{{"loss", *goal.loss}} : Json{{"ttft_s", *goal.ttft_s}}},
          {"met", chosen.met},
          {"found", json_of(chosen.found)},
          {"oracle", oracle}};
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

Setting read_setting(const Reader& in) {
  return {in.number("drop", 0, highest_drop), static_cast<int>(in.whole("levels", 2, most_levels))};
}

Found read_found(const Reader& in) {
  return {read_setting(in), in.number("loss", lowest), in.number("ttft_s", 0)};
}

FitError read_error(const Reader& in) {
  return {in.whole("samples", 0, most_tokens), in.number("mean_absolute_error", 0),
          in.whole("large_samples", 0, most_tokens), in.number("accuracy", lowest)};
}

LevelChoice read_levels(const Reader& in) {
  const auto as_numbers = [&](const Json& values, auto of_kind, auto& into) {
    if (!values.is_array()) in.refuse("has no list of numbers");
    for (const Json& value : values) {
      if (!of_kind(value)) in.refuse("has something else among numbers");
      into.push_back(value.get<typename std::decay_t<decltype(into)>::value_type>());
    }
  };
  std::vector<std::vector<int>> segments;
  const Json& levels = in.at("segments");
  if (!levels.is_array() || levels.empty() || levels.size() >= most_levels)
    in.refuse("has no segments of 2 to 4 levels");
  for (const Json& level : levels) {
    as_numbers(
        level, [](const Json& value) { return value.is_number_integer(); },
        segments.emplace_back());
    if (segments.back().empty() || segments.back().size() > most_ranks ||
        segments.back().size() != segments.front().size())
      in.refuse("has segments of unequal numbers of ranks");
  }
  std::vector<double> shares;
  as_numbers(
      in.at("shares"), [](const Json& value) { return value.is_number(); }, shares);
  if (shares.size() != segments.size() + 1) in.refuse("has not one share for each level");
  for (const double share : shares)
    if (!(share >= 0 && share <= most_levels)) in.refuse("has a share out of range");
  const auto ranks = static_cast<int>(segments.front().size());
  try {
    return {parallel::Levels(ranks, std::move(segments)), shares};
  } catch (const InvalidArgument&) {
    in.refuse("has segments that are not made of those below");
  }
}

DenseSample read_dense(const Reader& in) {
  return {in.text("prompt"), in.whole("tokens", 1, most_tokens), in.number("nll", lowest),
          in.number("ttft_s", 0)};
}

Sample read_sample(const Reader& in) {
  return {in.text("prompt"),         in.whole("tokens", 1, most_tokens),
          read_setting(in),          in.number("nll", lowest),
          in.number("loss", lowest), in.number("same_answers", 0, 1),
          in.number("ttft_s", 0),    in.flag("held_out")};
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
  Json terms = Json::object();
  for (size_t i = 0; i < LossModel::terms.size(); ++i)
    terms[std::string(LossModel::terms[i])] = {
        {"at_shortest", tuned.loss.coefficients[i].at_shortest},
        {"at_longest", tuned.loss.coefficients[i].at_longest}};
  return {{"schema", tuned_schema},
          {"version", tuned.version},
          {"model",
           {{"path", tuned.model_path},
            {"config_sha256", tuned.config_sha256},
            {"layers", tuned.layers}}},
          {"grid", {{"cp", tuned.cp}, {"tp", tuned.tp}}},
          {"geometry", name_of(tuned.geometry)},
          {"levels", list(tuned.levels, [](const LevelChoice& choice) { return json_of(choice); })},
          {"chosen", list(tuned.chosen, [](const Chosen& chosen) { return json_of(chosen); })},
          {"loss_model",
           {{"shortest", tuned.loss.shortest},
            {"longest", tuned.loss.longest},
            {"terms", terms},
            {"held_out", json_of(tuned.loss_error)}}},
          {"time_model",
           {{"s_per_token", tuned.time.s_per_token},
            {"s_per_pair", tuned.time.s_per_pair},
            {"constant_s", tuned.time.constant_s},
            {"sparse_share", tuned.time.sparse_share},
            {"held_out", json_of(tuned.time_error)}}},
          {"likelihood_s_per_token", tuned.likelihood_s_per_token},
          {"dense", list(tuned.dense,
                         [](const DenseSample& sample) {
                           return Json{{"prompt", sample.prompt},
                                       {"tokens", sample.tokens},
                                       {"nll", sample.nll},
                                       {"ttft_s", sample.ttft_s}};
                         })},
          {"samples", list(tuned.samples, [](const Sample& sample) {
             return Json{{"prompt", sample.prompt},
                         {"tokens", sample.tokens},
                         {"drop", sample.setting.drop},
                         {"levels", sample.setting.levels},
                         {"nll", sample.nll},
                         {"loss", sample.loss},
                         {"same_answers", sample.same_answers},
                         {"ttft_s", sample.ttft_s},
                         {"held_out", sample.held_out}};
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
  tuned.layers = model.whole("layers", 1, most_tokens);
  tuned.cp = static_cast<int>(grid.whole("cp", 1, most_ranks));
  tuned.tp = static_cast<int>(grid.whole("tp", 1, most_ranks));
  const std::string geometry = file.text("geometry");
  if (geometry == name_of(parallel::Geometry::nested))
    tuned.geometry = parallel::Geometry::nested;
  else if (geometry != name_of(parallel::Geometry::disjoint))
    file.refuse("has a geometry that is neither disjoint nor nested");
  tuned.levels = file.list("levels", read_levels);
  if (tuned.levels.empty()) file.refuse("has no levels");
  for (const LevelChoice& choice : tuned.levels)
    if (choice.levels.ranks() != parallel::level_parts(tuned.cp, tuned.tp))
      file.refuse("has levels of another number of ranks");
  tuned.chosen = file.list("chosen", read_chosen);
  tuned.loss.shortest = loss.whole("shortest", 1, most_tokens);
  tuned.loss.longest = loss.whole("longest", tuned.loss.shortest, most_tokens);
  const Reader terms = loss.in("terms");
  for (size_t i = 0; i < LossModel::terms.size(); ++i) {
    const Reader term = terms.in(std::string(LossModel::terms[i]).c_str());
    tuned.loss.coefficients[i] = {term.number("at_shortest", 0), term.number("at_longest", 0)};
  }
  tuned.loss_error = read_error(loss.in("held_out"));
  tuned.time = {time.number("s_per_token", 0), time.number("s_per_pair", 0),
                time.number("constant_s", 0), time.number("sparse_share", 0, 1)};
  tuned.time_error = read_error(time.in("held_out"));
  tuned.likelihood_s_per_token = file.number("likelihood_s_per_token", 0);
  tuned.dense = file.list("dense", read_dense);
  tuned.samples = file.list("samples", read_sample);
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
