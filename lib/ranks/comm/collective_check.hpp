// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds ranks that call different collectives, before they wait for each other forever or mix up
/// their messages. The check costs an extra exchange before every collective, so it is meant for
/// debug builds.

#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace pecia::comm {

enum class CollectiveChecks { off, on };

/// On in builds of type Debug and in builds with sanitizers.
CollectiveChecks checks_of_build();

/// The collective that one rank is about to start.
struct CollectiveHeader {
  char operation[24] = {};
  int64_t number = 0;  ///< counts all collectives of the group
  int64_t shape = 0;   ///< root, size or a hash of sizes; must be equal on all ranks

  CollectiveHeader() = default;
  CollectiveHeader(const char* name, int64_t number_of, int64_t shape_of)
      : number(number_of), shape(shape_of) {
    std::strncpy(operation, name, sizeof(operation) - 1);
  }
};

/// `headers` by rank of the group. Throws InvalidArgument when they differ, naming the first rank
/// that differs from rank 0 and the operation of each of the two.
void require_same(std::span<const CollectiveHeader> headers);

/// A hash of the sizes of blocks.
int64_t shape_of(std::span<const int64_t> sizes);

}  // namespace pecia::comm
