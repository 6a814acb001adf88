// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The bytes of a journal, schema "pecia.journal/4": a head that names the results, then rows.
///
/// A row is the number of bytes of its body (int64), the CRC-32 of that number and of the body
/// (uint32), and the body: turn, state, and the members of TurnResult in the order of `visit_row`,
/// vectors with their lengths first. All numbers are little-endian. A change of this needs a new
/// number in the schema, so that no version reads the rows of another one wrongly.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/files/results/results.hpp"

namespace pecia::io {

struct JournalRow {
  int64_t turn = 0;
  TurnResult result;
  TurnState state = TurnState::open;
};

/// The first bytes of every journal of these results: the schema, and a hash of what the results'
/// rows depend on. Results of other requests, settings or sizes have another head.
std::string journal_head(const ResultsLayout& results);

void append_row(const TurnUpdate& row, std::vector<std::byte>& to);

/// The bytes that the first row of `bytes` takes; absent where `bytes` end before its number does.
std::optional<int64_t> row_bytes(std::span<const std::byte> bytes);

/// Takes the first row away from `bytes`; absent, with `bytes` unchanged, unless it is whole.
/// Throws InvalidArgument where a row with a right checksum has no body of this schema.
std::optional<JournalRow> take_row(std::span<const std::byte>& bytes);

}  // namespace pecia::io
