// SPDX-License-Identifier: Apache-2.0
#include "lib/run/first_lines.hpp"

#include <utility>

#include "lib/base/core/isa.hpp"
#include "lib/base/report/format.hpp"
#include "lib/engine/execute/kv_saves.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/run/share_prefixes.hpp"
#include "lib/work/resources/prefix_sharing.hpp"

namespace pecia::run {

RunFacts facts_of(const Setup& setup, const LoadedWeights& weights) {
  const bool gpus = setup.resources.gpus, is_first = setup.round == 1;
  const DType held = weights.held();
  const resources::ComputePlace& place = setup.place;
  job::Job asked = setup.job;  // a tuned file's setting is in it
  asked.parallel = setup.asked.parallel;
  asked.batch.max_batch_tokens = setup.asked.batch.max_batch_tokens;
  return {std::move(asked),
          setup.job,
          setup.config,
          setup.resources,
          weights.bytes(),
          setup.ranks.places,
          gpus ? place.device->info().name : "",
          gpus ? "" : std::string(name_of(isa())),
          place.backend->attention_library(),
          setup.config.experts ? place.backend->expert_library() : "",
          gpus ? held : place.backend->operand_type(held),
          weights.rounding ? std::string(name_of(held)) : types_text(weights.views()),
          weights.rounding,
          is_first ? weights.read_bytes : std::vector<int64_t>(weights.read_bytes.size()),
          weights.packed_bytes,
          is_first ? weights.packing_s : 0};
}

void say_first_lines(const RunFacts& facts, const Setup& setup, const RunInputs& inputs,
                     const RunResults& results, const Start& start, double product_flops) {
  const job::Job& job = setup.job;
  spdlog::logger& log = *setup.log;
  const bool is_root = setup.is_root();
  if (is_root) {
    log.info(first_line(facts, static_cast<int64_t>(inputs.inputs->requests().size()),
                        inputs.inputs->prompt_tokens()));
    if (const measure::ProductChoice& products = setup.products; products.is_new)
      log.info("products of this machine, {}: {}", products.why,
               measure::products_text(products.products));
    if (setup.round > 1)
      log.info("round {}: the weights stay", setup.round);
    else if (facts.packed_bytes > 0)
      log.info("weights packed: {} on each host, in {:.1f} s",
               report::format_bytes(facts.packed_bytes), facts.packing_s);
    if (!setup.products.warning.empty()) log.warn("{}", setup.products.warning);
    if (inputs.inputs->refused_requests() > 0)
      log.info("{} of them cannot run; the results say why", inputs.inputs->refused_requests());
    const auto why_not = resources::why_not_shared(job, setup.config, setup.resources);
    if (const auto line = sharing_line(*inputs.inputs, why_not); !line.empty()) log.info(line);
  }
  comm::together(setup.world(), [&] {
    if (!is_root) return;
    const bool has_answers = results.found.done + results.found.partial > 0;
    const auto warning = record_start(job.output, start, has_answers, job.reproducible);
    if (warning) log.warn("{}", *warning);
  });
  if (is_root && job.kv.save.on && !keeps_kv(setup))
    log.info("kv.save: nothing is kept, as generation.prompt_logprobs has every prompt computed");
  if (is_root && setup.resources.kv_recent_tokens > 0)
    log.info("layers with a window keep recent tokens alone, in {} slots on each rank",
             setup.resources.kv_recent_tokens);
  if (is_root && keeps_kv(setup)) {
    const auto line = execute::keeping_line(setup.config, *inputs.inputs, setup.resources,
                                            product_flops / setup.resources.dp);
    if (!line.empty()) log.info(line);
  }
}

}  // namespace pecia::run
