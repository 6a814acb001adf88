// SPDX-License-Identifier: Apache-2.0
#include "lib/run/share_prefixes.hpp"

#include <vector>

#include "lib/base/core/archive.hpp"
#include "lib/base/report/format.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/work/resources/prefix_sharing.hpp"

namespace pecia::run {
namespace {

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

void share_prefixes(const Setup& setup, RunInputs& inputs) {
  if (!resources::why_not_shared(setup.job, setup.config, setup.resources).empty()) return;
  std::vector<batch::SharedPrefix> prefixes;
  comm::together(setup.world(), [&] {
    if (!setup.is_root()) return;
    const batch::PrefixRules rules =
        resources::prefix_rules(setup.job, setup.config, setup.resources);
    prefixes = find_prefixes(inputs.inputs->prompt_prefixes(rules.block), rules);
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
