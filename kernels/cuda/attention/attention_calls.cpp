// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/attention_calls.hpp"

#include <algorithm>

namespace pecia::kernels::cuda {
namespace {

AttentionOnDevice send(const AttentionArgs& args, const AttentionPlan& plan, const PlanRoom& room,
                       Staging& staging, device::Stream& stream) {
  int64_t bytes = Staging::bytes_of(args.query_positions) + Staging::bytes_of<KeyRun>(room.runs);
  for (const PlanRoom::List* list : {&room.wide, &room.narrow})
    bytes += Staging::bytes_of<QueryTile>(list->query_tiles) +
             Staging::bytes_of<PartialTile>(list->partial_tiles);
  staging.begin(bytes, stream);
  AttentionOnDevice there;
  there.query_positions = staging.add(args.query_positions);
  there.runs = staging.add(args.runs, room.runs);
  const auto add = [&](const TileList& list, const PlanRoom::List& its_room) {
    return AttentionOnDevice::List{
        staging.add(std::span(list.query_tiles), its_room.query_tiles),
        staging.add(std::span(list.partial_tiles), its_room.partial_tiles)};
  };
  there.wide = add(plan.wide, room.wide);
  there.narrow = add(plan.narrow, room.narrow);
  staging.send(stream);
  return there;
}

}  // namespace

bool PlannedAttention::serves(const AttentionArgs& call, const PlanLimits& wanted) const {
  const auto same_span = [](const auto& a, const auto& b) {
    return a.data() == b.data() && a.size() == b.size();
  };
  return wanted == limits && call.row_invariant == args.row_invariant &&
         same_span(call.items, args.items) && same_span(call.runs, args.runs) &&
         same_span(call.query_positions, args.query_positions) &&
         call.q.size(1) == args.q.size(1) && call.num_kv_heads == args.num_kv_heads &&
         call.window == args.window;
}

std::shared_ptr<const PlannedAttention> AttentionCalls::plan(const AttentionArgs& args,
                                                             const PlanLimits& limits, bool lasts,
                                                             device::Stream& stream) {
  const bool in_step = staging_.in_step();  // after it, spans may have become others
  if (in_step)
    for (const auto& earlier : planned_)
      if (earlier->serves(args, limits)) return earlier;
  const AttentionPlan plan = plan_attention(args, limits);
  PlanRoom room = exact_room(args, plan);
  if (lasts && in_step) {
    const size_t index = planned_.size();
    rooms_.resize(std::max(rooms_.size(), index + 1));
    room = rooms_[index] = lasting_room(room, rooms_[index]);
  }
  auto made = std::make_shared<PlannedAttention>(
      PlannedAttention{args, limits, room, send(args, plan, room, staging_, stream)});
  if (lasts && in_step) planned_.push_back(made);
  return made;
}

}  // namespace pecia::kernels::cuda
