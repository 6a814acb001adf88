// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A value that one rank has and all ranks need.

#include <utility>

#include "lib/base/core/archive.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::comm {

/// Collective over `ranks`: gives the value of rank 0 to all. The value is one that pecia::Writer
/// takes, or has a `visit` of its own (lib/base/core/archive.hpp). What the other ranks pass is lost.
template <typename T>
T of_first(Communicator& ranks, T value) {
  constexpr bool visits = requires(T & it, Writer & writer) {
    it.visit(writer);
  };
  std::vector<std::byte> bytes;
  if (ranks.rank() == 0) {
    Writer writer;
    if constexpr (visits)
      value.visit(writer);
    else
      writer(value);
    bytes = writer.take();
  }
  ranks.broadcast(bytes, 0);
  if (ranks.rank() == 0) return value;
  Reader reader(bytes);
  if constexpr (visits)
    value.visit(reader);
  else
    reader(value);
  PECIA_CHECK(reader.done(), "bytes left over");
  return value;
}

}  // namespace pecia::comm
