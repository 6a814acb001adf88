// SPDX-License-Identifier: Apache-2.0
#include "lib/run/read_inputs.hpp"

#include <vector>

#include "lib/comm/agree.hpp"
#include "lib/core/archive.hpp"

namespace pecia::run {
namespace {

/// What earlier starts left; the same on every rank.
batch::Earlier agreed_earlier(const Setup& setup) {
  const RunOptions& options = setup.options;
  batch::Earlier earlier;
  comm::together(setup.world(), [&] {
    if (setup.chief())
      earlier = batch::read_earlier(setup.job, options.fresh, options.retry_failed);
  });
  std::vector<std::byte> bytes = to_bytes(earlier);
  setup.ranks.ordered->broadcast(bytes, 0);
  if (!setup.chief()) earlier = from_bytes<batch::Earlier>(bytes);
  return earlier;
}

/// Leaves out turns with tokens outside the vocabulary. One rank reads all tokens, for the ranks
/// that have inputs.
void leave_out_bad_tokens(const Setup& setup, batch::Inputs* inputs) {
  std::vector<int64_t> rows;
  comm::together(setup.world(), [&] {
    if (setup.chief()) rows = inputs->rows_with_bad_tokens();
  });
  Writer writer;
  writer(rows);
  std::vector<std::byte> bytes = writer.take();
  setup.ranks.ordered->broadcast(bytes, 0);
  Reader reader(bytes);
  reader(rows);
  if (inputs != nullptr) inputs->leave_out(rows);
}

}  // namespace

RunInputs read_inputs(Setup& setup) {
  RunInputs read{agreed_earlier(setup), {}, {}};
  batch::reorder_inputs(setup.job, read.earlier.order);
  comm::together(setup.world(), [&] {
    if (!setup.planning()) return;
    read.inputs.emplace(setup.job, setup.config, read.earlier.turns);
    read.detokenizer = read.inputs->detokenizer();
  });
  leave_out_bad_tokens(setup, read.get());
  return read;
}

}  // namespace pecia::run
