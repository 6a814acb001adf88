// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/support/model_bench.hpp"

#include "apps/bench/support/agreement.hpp"

namespace pecia::bench {
namespace {

/// Throws InputError for settings with which --check cannot tell right from wrong.
void refuse_check_of_codes(const ModelOptions& options) {
  if (options.dtype != "auto")
    fail<InputError>(
        "--check compares with the weights as they are stored, and those of {} differ by their "
        "rounding; check with --dtype auto",
        options.dtype);
}

}  // namespace

ModelBench::ModelBench(const Session& session, const ModelOptions& options)
    : session_(session),
      world_(session.world),
      model_options_(options),
      loaded_(load_model(session.world, options.model)),
      model_(*loaded_),
      config_(model_.config),
      settings_(replica_settings(options, model_, session)),
      results_(session) {}

void ModelBench::begin(const std::string& what, const nlohmann::ordered_json& facts) {
  const ModelOptions& options = model_options_;
  if (session_.options.check) refuse_check_of_codes(options);
  const std::string name = options.model.filename().string(),
                    kv(name_of(settings_.resources.kv_dtype));
  const std::string layout = grid(options, world_.size());
  nlohmann::ordered_json all{{"model", name},
                             {"grid", layout},
                             {"dtype", options.dtype},
                             {"compute", options.compute},
                             {"kv_dtype", kv}};
  all.update(facts);
  results_.begin(
      fmt::format("{}, weights {}, KV {}, {}, {}", name, options.dtype, kv, what, layout), all);
  const resources::ComputePlace place = make_place(settings_, model_, world_);
  results_.on_device(place.device->info());
  floors_ = measure_floors(world_, place, options.product_type());
  results_.line(fmt::format(
      "floor of all ranks: reads {:.1f} GB/s, matrix product {:.1f} GFLOP/s; the hardware gives "
      "{:.1f} by {}",
      floors_.read_bandwidth * 1e-9, floors_.flops * 1e-9, floors_.peak.start.best * 1e-9,
      floors_.peak.instructions));
}

void ModelBench::check_in_fp32(ReplicaSettings settings, const Feed& feed,
                               const std::string& what) {
  constexpr double tolerance = 1e-2;
  settings.resources.kv_dtype = DType::fp32;
  if (!settings.resources.gpus) settings.job.model.compute = job::Precision::fp32;
  if (config_.quantization)
    return compare_with_one_rank(model_, std::move(settings), feed, tolerance, what);
  if (exact_ == nullptr) exact_ = load_model(world_, model_.folder, DType::fp32);
  compare_with_one_rank(*exact_, std::move(settings), feed, tolerance, what);
}

void ModelBench::compare_with_one_rank(const LoadedModel& model, ReplicaSettings settings,
                                       const Feed& feed, double tolerance,
                                       const std::string& what) const {
  settings.job.generation.logprobs = -1;
  const std::vector<float> ours = feed(world_, model, settings);
  std::string problem;
  if (world_.rank() == 0) {
    const auto alone = comm::make_null_communicator();
    problem = difference(ours, feed(*alone, model, settings.of_one_rank()), tolerance);
    if (!problem.empty()) problem = fmt::format("log-probabilities {}: {}", what, problem);
  }
  check_together(world_, problem);
  results_.line(fmt::format("    checked: {} as one rank alone", what));
}

std::vector<int32_t> ModelBench::tokens_of(int64_t count, int64_t number) const {
  return random_tokens(count, config_.vocab, model_options_.seed + static_cast<uint64_t>(number));
}

double logprob_tolerance(DType kv_dtype, DType operands) {
  if (operands != DType::fp32) return 0.3;
  return kv_dtype == DType::fp32 ? 1e-3 : 5e-2;
}

}  // namespace pecia::bench
