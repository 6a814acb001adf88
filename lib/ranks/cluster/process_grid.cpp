// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/cluster/process_grid.hpp"

#include "lib/base/core/error.hpp"
#include "lib/ranks/cluster/grid_order.hpp"

namespace pecia::cluster {
namespace {

int64_t index_of(const GridShape& shape, const GridCoordinates& at) {
  const int64_t stage = int64_t{at.dp} * shape.pp + at.pp;
  return ((stage * shape.cp + at.cp) * shape.sp + at.sp) * shape.tp + at.tp;
}

}  // namespace

ProcessGrid::ProcessGrid(GridShape shape, std::span<const comm::RackServerGpu> places)
    : shape_(shape), index_of_rank_(places.size()) {
  PECIA_CHECK(shape.dp >= 1 && shape.pp >= 1 && shape.cp >= 1 && shape.sp >= 1 && shape.tp >= 1,
              "grid DP {} × PP {} × CP {} × SP {} × TP {}", shape.dp, shape.pp, shape.cp, shape.sp,
              shape.tp);
  const auto ranks = static_cast<int64_t>(places.size());
  const int64_t without_cp = int64_t{shape.dp} * shape.pp * shape.sp * shape.tp;
  if (shape.ranks() != ranks)
    fail<InputError>(
        "DP {}{} × CP {} × SP {} × TP {} is a grid of {} ranks, but {} run; {}", shape.dp,
        shape.pp > 1 ? fmt::format(" × PP {}", shape.pp) : "", shape.cp, shape.sp, shape.tp,
        shape.ranks(), ranks,
        ranks % without_cp == 0
            ? fmt::format("start {} or set parallel.cp: {}", shape.ranks(), ranks / without_cp)
            : fmt::format("start a multiple of {} with parallel.cp: auto", without_cp));
  rank_at_index_ = grid_order(places, static_cast<int>(ranks / shape.dp));
  for (int index = 0; index < ranks; ++index) index_of_rank_[rank_at_index_[index]] = index;
}

GridCoordinates ProcessGrid::coordinates(int rank) const {
  PECIA_CHECK(rank >= 0 && rank < shape_.ranks(), "rank {} of {}", rank, shape_.ranks());
  const int index = index_of_rank_[rank];
  const int stage = index / (shape_.tp * shape_.sp * shape_.cp);  // of all replicas
  return {stage / shape_.pp, index / (shape_.tp * shape_.sp) % shape_.cp,
          index / shape_.tp % shape_.sp, index % shape_.tp, stage % shape_.pp};
}

int ProcessGrid::rank_at(const GridCoordinates& at) const {
  PECIA_CHECK(
      at.dp >= 0 && at.dp < shape_.dp && at.pp >= 0 && at.pp < shape_.pp && at.cp >= 0 &&
          at.cp < shape_.cp && at.sp >= 0 && at.sp < shape_.sp && at.tp >= 0 && at.tp < shape_.tp,
      "coordinates ({}, {}, {}, {}, {}) outside the grid", at.dp, at.pp, at.cp, at.sp, at.tp);
  return rank_at_index_[index_of(shape_, at)];
}

std::vector<int> ProcessGrid::group(Axis axis, int rank) const {
  const auto member = [axis](auto& of) -> auto& {
    switch (axis) {
      case Axis::dp:
        return of.dp;
      case Axis::pp:
        return of.pp;
      case Axis::cp:
        return of.cp;
      case Axis::sp:
        return of.sp;
      case Axis::tp:
        return of.tp;
    }
    fail<InvalidArgument>("axis {}", static_cast<int>(axis));
  };
  GridCoordinates at = coordinates(rank);
  std::vector<int> ranks;
  for (int i = 0; i < member(shape_); ++i) {
    member(at) = i;
    ranks.push_back(rank_at(at));
  }
  return ranks;
}

std::vector<int> ProcessGrid::replica(int dp) const {
  PECIA_CHECK(dp >= 0 && dp < shape_.dp, "replica {} of {}", dp, shape_.dp);
  const auto size = shape_.ranks() / shape_.dp;
  const auto begin = rank_at_index_.begin() + dp * size;
  return {begin, begin + size};
}

}  // namespace pecia::cluster
