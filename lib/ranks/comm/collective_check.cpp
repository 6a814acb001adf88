// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/collective_check.hpp"

#include "lib/base/core/error.hpp"

namespace pecia::comm {
namespace {

std::string text(const CollectiveHeader& header) {
  return fmt::format("{} #{} of shape {:x}", header.operation, header.number, header.shape);
}

}  // namespace

CollectiveChecks checks_of_build() {
  return PECIA_CHECK_COLLECTIVES ? CollectiveChecks::on : CollectiveChecks::off;
}

void require_same(std::span<const CollectiveHeader> headers) {
  for (size_t rank = 1; rank < headers.size(); ++rank)
    if (std::memcmp(&headers[rank], &headers[0], sizeof(CollectiveHeader)) != 0)
      fail<InvalidArgument>(
          "ranks of a group of {} are in different collectives: rank 0 in {}, rank {} in {}",
          headers.size(), text(headers[0]), rank, text(headers[rank]));
}

int64_t shape_of(std::span<const int64_t> sizes) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a over the numbers
  for (const int64_t size : sizes) hash = (hash ^ static_cast<uint64_t>(size)) * 1099511628211u;
  return static_cast<int64_t>(hash);
}

}  // namespace pecia::comm
