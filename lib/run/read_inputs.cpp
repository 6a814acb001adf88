// SPDX-License-Identifier: Apache-2.0
#include "lib/run/read_inputs.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/comm/of_first.hpp"
#include "lib/run/answer_grammars.hpp"
#include "lib/work/batch/journals.hpp"

namespace pecia::run {
namespace {

/// What earlier starts left, in their journals too; the same on every rank.
batch::Earlier agreed_earlier(const Setup& setup) {
  const RunOptions& options = setup.options;
  batch::Earlier earlier;
  comm::together(setup.world(), [&] {
    if (!setup.is_root()) return;
    if (!options.fresh)
      batch::replay_journals(setup.job.output,
                             [&](const std::string& text) { setup.log->info(text); });
    earlier = batch::read_earlier(setup.job, options.fresh, options.retry_failed);
  });
  return comm::of_first(*setup.ranks.ordered, std::move(earlier));
}

/// Leaves out turns with tokens outside the vocabulary. One rank reads all tokens, for the ranks
/// that have inputs.
void leave_out_bad_tokens(const Setup& setup, batch::Inputs* inputs) {
  std::vector<int64_t> rows;
  comm::together(setup.world(), [&] {
    if (setup.is_root()) rows = inputs->rows_with_bad_tokens();
  });
  rows = comm::of_first(*setup.ranks.ordered, std::move(rows));
  if (inputs != nullptr) inputs->leave_out(rows);
}

}  // namespace

RunInputs read_inputs(Setup& setup) {
  RunInputs read{agreed_earlier(setup), {}, {}, {}};
  batch::reorder_inputs(setup.job, read.earlier.order);
  comm::together(setup.world(), [&] {
    if (!setup.planning()) return;
    read.inputs.emplace(setup.job, setup.config, read.earlier.turns);
    read.detokenizer = read.inputs->detokenizer();
  });
  const bool here = read.inputs && !read.inputs->shapes().empty();
  if (setup.world().all_reduce_max(here ? 1 : 0) > 0)
    comm::together(setup.world(), [&] {
      read.grammars =
          answer_grammars(setup.job, setup.config,
                          here ? read.inputs->shapes() : std::map<std::string, std::string>(),
                          setup.resources.threads.count);
    });
  leave_out_bad_tokens(setup, read.get());
  return read;
}

}  // namespace pecia::run
