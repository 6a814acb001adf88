// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/measured.hpp"

#include <nlohmann/json.hpp>

#include "lib/base/core/json.hpp"
#include "lib/settle/measure/calibration.hpp"

namespace pecia::measure {
namespace {

using Json = nlohmann::ordered_json;

Json degrees_of(const resources::Resources& resources) {
  Json degrees{
      {"cp", resources.cp}, {"sp", resources.sp}, {"tp", resources.tp}, {"ep", resources.ep}};
  if (resources.pp > 1) degrees["pp"] = resources.pp;
  return degrees;
}

}  // namespace

std::string to_json(const Measured& measured, const resources::Resources& resources) {
  Json json{{"degrees", degrees_of(resources)},
            {"elastic", resources.elastic && !resources.fixed_parts},
            {"answering", resources.answering},
            {"ring_flops", measured.ring.flops},
            {"ring_bandwidth", measured.ring.bandwidth},
            {"all_to_all_bandwidth", measured.ring.all_to_all_bandwidth},
            {"links",
             {measured.links.across_s_per_byte, measured.links.inside_s_per_byte,
              measured.links.exchange_s, measured.links.racks_s_per_byte}}};
  if (!measured.products.empty()) json["products"] = measured.products;
  json["layout"] = {{"ranks", resources.dp * resources.replica_ranks()},
                    {"settings", measured.layout}};
  if (const auto& rule = measured.fitted_rule)
    json["fitted_rule"] = {rule->new_tokens, rule->miss_rate, rule->constant};
  if (measured.shift_threshold) json["shift_threshold"] = *measured.shift_threshold;
  return json_text(json);
}

std::optional<Measured> parse_measured(const std::string& text,
                                       const resources::Resources& resources) try {
  const Json json = parse_json<Json>(text);
  if (json.at("degrees") != degrees_of(resources)) return {};
  Measured measured;
  measured.ring = {json.at("ring_flops").get<double>(), json.at("ring_bandwidth").get<double>(),
                   json.at("all_to_all_bandwidth").get<double>()};
  if (resources.elastic && measured.ring.bandwidth <= 0) return {};  // it was not elastic then
  if (json.contains("shift_threshold"))
    measured.shift_threshold = json.at("shift_threshold").get<int64_t>();
  if (json.contains("fitted_rule")) {
    const Json& rule = json.at("fitted_rule");
    measured.fitted_rule = {rule.at(0).get<double>(), rule.at(1).get<double>(),
                            rule.at(2).get<double>()};
  }
  measured.products = json.value("products", "");
  const Json& links = json.at("links");
  measured.links = {links.at(0).get<double>(), links.at(1).get<double>(), links.at(2).get<double>(),
                    links.at(3).get<double>()};
  return measured;
} catch (const nlohmann::json::exception&) {
  return {};
}

std::string kept_products_of_run(const std::string& text) try {
  return parse_json<Json>(text).value("products", "");
} catch (const nlohmann::json::exception&) {
  return {};
}

std::optional<std::vector<std::string>> kept_layout(const std::string& text, int ranks) try {
  const Json layout = parse_json<Json>(text).at("layout");
  if (layout.at("ranks") != ranks) return {};
  return layout.at("settings").get<std::vector<std::string>>();
} catch (const nlohmann::json::exception&) {
  return {};
}

std::optional<bool> kept_elastic(const std::string& text,
                                 const resources::Resources& resources) try {
  const Json json = parse_json<Json>(text);
  if (json.at("degrees") != degrees_of(resources)) return {};
  return json.at("elastic").get<bool>();
} catch (const nlohmann::json::exception&) {
  return {};
}

std::optional<int> kept_answering(const std::string& text,
                                  const resources::Resources& resources) try {
  const Json json = parse_json<Json>(text);
  if (json.at("degrees") != degrees_of(resources)) return {};
  return json.at("answering").get<int>();
} catch (const nlohmann::json::exception&) {
  return {};
}

parallel::RingRates measure_ring(const model::ModelConfig& config,
                                 const resources::Resources& resources, comm::Communicator& world,
                                 comm::Communicator& replica, const attention::Compute& compute,
                                 spdlog::logger& log) {
  if (resources.cp == 1 || (resources.ring && !resources.elastic && !resources.sparse)) return {};
  const int block = resources.sp * resources.tp, in_stage = resources.cp * block;
  const int rank = replica.rank(), stage = rank / in_stage;
  const auto ring = replica.split(stage * block + rank % block, rank % in_stage / block);
  return calibrate(world, *ring, compute,
                   attention_shape(config, resources.degrees(), resources.kv_dtype), log);
}

Measured measure_choices(const job::Job& job, const model::ModelConfig& config,
                         const resources::Resources& resources,
                         const std::function<parallel::SentPerToken()>& sent,
                         const parallel::RingRates& ring, comm::Communicator& world,
                         comm::Communicator& block, const attention::Compute& compute) {
  Measured measured{ring, {}, {}};
  if (resources.decode == parallel::DecodeMode::shift) {
    measured.shift_threshold = resources.shift_threshold;
    if (!measured.shift_threshold) {
      const DType weights = resources::held_dtype(job, config);
      // In a group of its own, so that the report counts the run's traffic alone.
      const auto own = block.split(0, block.rank());
      measured.shift_threshold = parallel::shift_threshold(
          measure_shift_inputs(config, weights, resources::code_use(job, config, resources),
                               resources.sp, resources.tp, sent(), world, *own, compute),
          resources.max_batch_tokens);
    }
  }
  return measured;
}

}  // namespace pecia::measure
