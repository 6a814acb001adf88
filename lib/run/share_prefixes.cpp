// SPDX-License-Identifier: Apache-2.0
#include "lib/run/share_prefixes.hpp"

#include <vector>

#include "lib/comm/agree.hpp"
#include "lib/core/archive.hpp"
#include "lib/report/format.hpp"

namespace pecia::run {
namespace {

/// Where results must not depend on the batch, prompts are always cut at the same tokens, and so a
/// beginning ends at one of these cuts.
int64_t block_of(const Setup& setup) {
  if (setup.job.reproducible != parallel::Reproducible::layout) return batch::PrefixRules{}.block;
  const resources::Resources& resources = setup.resources;
  return resources::resolve_batch_tokens(
      setup.job, setup.config, parallel::row_ranks(resources.degrees(), resources.prefill),
      resources.gpus);
}

std::vector<std::byte> packed(const std::vector<batch::SharedPrefix>& prefixes) {
  Writer writer;
  writer(static_cast<int64_t>(prefixes.size()));
  for (const batch::SharedPrefix& prefix : prefixes) writer(prefix.tokens), writer(prefix.requests);
  return writer.take();
}

std::vector<batch::SharedPrefix> unpacked(const std::vector<std::byte>& bytes) {
  Reader reader(bytes);
  int64_t count = 0;
  reader(count);
  std::vector<batch::SharedPrefix> prefixes(static_cast<size_t>(count));
  for (batch::SharedPrefix& prefix : prefixes) reader(prefix.tokens), reader(prefix.requests);
  return prefixes;
}

}  // namespace

std::string why_not_shared(const job::Job& job, const model::ModelConfig& config,
                           const resources::Resources& resources) {
  if (!job.batch.prefix_sharing) return "batch.prefix_sharing is false";
  if (job.batch.arrivals == job::Arrivals::replay) return "arrivals are replayed";
  if (job.generation.prompt_logprobs != 0)
    return "generation.prompt_logprobs has every prompt computed";
  if (resources.sparse) return "attention.sparse keeps other tokens of a prompt that is cut";
  if (config.rope.scaling == model::RopeScaling::dynamic)
    return "dynamic RoPE scaling rotates a prompt's tokens by its length";
  return "";
}

void share_prefixes(const Setup& setup, RunInputs& inputs) {
  const resources::Resources& resources = setup.resources;
  if (!why_not_shared(setup.job, setup.config, resources).empty()) return;
  std::vector<batch::SharedPrefix> prefixes;
  comm::together(setup.world(), [&] {
    if (!setup.chief()) return;
    const int64_t block = block_of(setup);
    prefixes = find_prefixes(
        inputs.inputs->prompt_prefixes(block),
        {.block = block, .parts = resources.dp * (resources.elastic ? resources.cp : 1)});
  });
  std::vector<std::byte> bytes = packed(prefixes);
  setup.ranks.ordered->broadcast(bytes, 0);
  if (inputs.inputs) inputs.inputs->share(unpacked(bytes));
}

std::string sharing_line(const batch::Inputs& inputs, const std::string& why_not) {
  const auto& prefixes = inputs.shared_prefixes();
  if (!why_not.empty()) return fmt::format("requests that begin alike share nothing: {}", why_not);
  if (prefixes.empty()) return "";
  int64_t requests = 0;
  for (const batch::SharedPrefix& prefix : prefixes) requests += std::ssize(prefix.requests);
  return fmt::format(
      "{} requests begin alike in {} group{}: {} of all prompt tokens are not "
      "computed again (batch.prefix_sharing)",
      requests, prefixes.size(), prefixes.size() == 1 ? "" : "s",
      report::format_count(static_cast<double>(inputs.shared_tokens())));
}

}  // namespace pecia::run
