// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds ranks that are in different collectives before these wait for each other for ever or mix
/// up their messages. Costs an exchange of its own in front of every collective: for debug builds.

#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace pecia::comm {

enum class CollectiveChecks { off, on };

/// On in builds of type Debug and in those with sanitizers.
CollectiveChecks checks_of_build();

/// What one rank is about to do.
struct CollectiveHeader {
  char operation[24] = {};
  int64_t number = 0;  ///< of all collectives of the group
  int64_t shape = 0;   ///< root, size or a hash of sizes; what has to be equal

  CollectiveHeader() = default;
  CollectiveHeader(const char* name, int64_t number_of, int64_t shape_of)
      : number(number_of), shape(shape_of) {
    std::strncpy(operation, name, sizeof(operation) - 1);
  }
};

/// By rank of the group. Throws InvalidArgument that names the first rank that differs from rank 0,
/// and what both are about to do.
void require_same(std::span<const CollectiveHeader> headers);

/// A number for the sizes of blocks.
int64_t shape_of(std::span<const int64_t> sizes);

}  // namespace pecia::comm
