// SPDX-License-Identifier: Apache-2.0
#include "lib/run/starts.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "lib/base/core/files.hpp"
#include "lib/base/core/json.hpp"
#include "lib/base/report/atomic_file.hpp"

namespace pecia::run {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* schema = "pecia.starts/1";
constexpr std::array team_phases{std::pair("prefill", schedule::PassKind::prefill),
                                 std::pair("decode", schedule::PassKind::decode)};

Json json_of(const Start& start) {
  return {{"layout", start.layout},
          {"products", name_of(start.products)},
          {"keys_and_values", name_of(start.keys_and_values)}};
}

bool is_like(const Json& earlier, const Start& start) {
  const Json wanted = json_of(start);
  return std::all_of(wanted.items().begin(), wanted.items().end(), [&](const auto& item) {
    return earlier.contains(item.key()) && earlier[item.key()] == item.value();
  });
}

void write_starts(const std::filesystem::path& path, const Json& starts) {
  report::write_atomically(path, json_text(Json{{"schema", schema}, {"starts", starts}}, 2) + "\n");
}

Json json_of(const schedule::PassRates& rates) {
  return {{"pass_s", rates.pass_s}, {"row_s", rates.row_s}, {"pair_s", rates.pair_s}};
}

/// A rate that was fitted to nothing keeps a share of the estimate, so that it can grow again.
schedule::RateFit fit_of(const Json& start, const char* phase, const schedule::RateFit& estimate) {
  constexpr double least = 0.01;
  if (!start.contains(phase) || !start[phase].is_object()) return estimate;
  const auto rate = [&](const char* name, double estimated) {
    const Json& kept = start[phase].value(name, Json());
    return kept.is_number() ? std::max(kept.get<double>(), least * estimated) : estimated;
  };
  const schedule::PassRates& by = estimate.rates();
  return schedule::RateFit(
      {rate("pass_s", by.pass_s), rate("row_s", by.row_s), rate("pair_s", by.pair_s)});
}

/// The records of earlier starts; an empty list where there is no file.
Json read_starts(const std::filesystem::path& path) {
  std::error_code unreachable;
  if (!std::filesystem::exists(path, unreachable)) return Json::array();
  const Json json = try_json<Json>(text_of_file(path).value_or(""));
  const auto is_start = [](const Json& start) {
    return start.is_object() && start.contains("layout") && start["layout"].is_string() &&
           start.contains("products") && start["products"].is_string();
  };
  if (!json.is_object() || json.value("schema", Json()) != schema || !json.contains("starts") ||
      !json["starts"].is_array() ||
      !std::all_of(json["starts"].begin(), json["starts"].end(), is_start))
    fail<InputError>(
        "{}: it is not as a run writes it, and says on which layouts the answers so far were "
        "computed; remove it to go on without knowing",
        path.string());
  return json["starts"];
}

}  // namespace

Start start_of(const resources::Resources& resources, DType products) {
  return {fmt::format("dp {}{}, cp {}, sp {}, tp {}, {}, {}", resources.dp,
                      resources.pp > 1 ? fmt::format(", pp {}", resources.pp) : "", resources.cp,
                      resources.sp, resources.tp, resources::mode_name(resources),
                      resources.gpus ? "GPUs" : "CPUs"),
          products, resources.kv_dtype};
}

std::optional<std::string> record_start(const std::filesystem::path& folder, const Start& start,
                                        bool has_answers, parallel::Reproducible reproducible) {
  const auto path = folder / "starts.json";
  Json starts = has_answers ? read_starts(path) : Json::array();
  const Json now = json_of(start);
  const bool narrow_cache = start.keys_and_values != DType::fp32;
  const auto narrow_products = [&](const Json& earlier) {
    return start.products != DType::fp32 || earlier["products"] != "fp32";
  };
  const auto other = std::find_if(starts.begin(), starts.end(), [&](const Json& earlier) {
    const bool same = earlier["layout"] == now["layout"] && earlier["products"] == now["products"];
    return !same && (narrow_cache || narrow_products(earlier));
  });
  std::optional<std::string> warning;
  const auto multiplied = std::find_if(starts.begin(), starts.end(), [&](const Json& earlier) {
    return earlier["products"] != now["products"];
  });
  if (multiplied != starts.end() && reproducible == parallel::Reproducible::layout)
    warning = fmt::format(
        "an earlier start of this run multiplied in {}, and this one multiplies in {}, so its bits "
        "are others. Set model.compute to {} to continue with the same bits",
        (*multiplied)["products"].get<std::string>(), name_of(start.products),
        (*multiplied)["products"].get<std::string>());
  if (other != starts.end() && reproducible != parallel::Reproducible::layout) {
    const auto words = [](const Json& of) {
      return fmt::format("{}, products in {}", of["layout"].get<std::string>(),
                         of["products"].get<std::string>());
    };
    warning = fmt::format(
        "an earlier start of this run had another layout ({}) than this one ({}). With {} that are "
        "not fp32, texts of different layouts may differ where two tokens are nearly as likely. "
        "Continue on the earlier layout, or let a new run have reproducible: layout",
        words(*other), words(now),
        !narrow_products(*other) ? "keys and values"
        : !narrow_cache          ? "products"
                                 : "products, keys and values");
  }
  if (std::none_of(starts.begin(), starts.end(),
                   [&](const Json& earlier) { return is_like(earlier, start); })) {
    starts.push_back(now);
    write_starts(path, starts);
  }
  return warning;
}

void keep_times(const std::filesystem::path& folder, const Start& start,
                const schedule::PassTimes& times, const std::optional<schedule::TeamTimes>& teams) {
  const auto path = folder / "starts.json";
  Json starts = read_starts(path);
  for (Json& earlier : starts) {
    if (!is_like(earlier, start)) continue;
    if (times.prefill.measured()) earlier["prefill"] = json_of(times.prefill.rates());
    if (times.decode.measured()) earlier["decode"] = json_of(times.decode.rates());
    for (int degree = 1; teams && degree <= teams->degrees(); ++degree)
      for (const auto& [phase, kind] : team_phases)
        if (teams->measured(degree, kind))
          earlier["teams"][std::to_string(degree)][phase] = json_of(teams->rates(degree, kind));
  }
  write_starts(path, starts);
}

schedule::PassTimes kept_times(const std::filesystem::path& folder, const Start& start,
                               const schedule::PassTimes& estimate) {
  for (const Json& earlier : read_starts(folder / "starts.json"))
    if (is_like(earlier, start))
      return {fit_of(earlier, "prefill", estimate.prefill),
              fit_of(earlier, "decode", estimate.decode)};
  return estimate;
}

void begin_as_kept(const std::filesystem::path& folder, const Start& start,
                   schedule::TeamTimes& teams) {
  for (const Json& earlier : read_starts(folder / "starts.json")) {
    if (!is_like(earlier, start) || !earlier.contains("teams")) continue;
    for (int degree = 1; degree <= teams.degrees(); ++degree) {
      const Json of_degree = earlier["teams"].value(std::to_string(degree), Json::object());
      for (const auto& [phase, kind] : team_phases)
        if (of_degree.contains(phase))
          teams.begin_with(
              degree, kind,
              fit_of(of_degree, phase, schedule::RateFit(teams.rates(degree, kind))).rates());
    }
    return;
  }
}

}  // namespace pecia::run
