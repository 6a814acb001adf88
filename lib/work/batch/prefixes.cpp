// SPDX-License-Identifier: Apache-2.0
#include "lib/work/batch/prefixes.hpp"

#include <algorithm>
#include <cmath>
#include <list>
#include <string_view>
#include <tuple>
#include <utility>

#include "lib/base/core/random.hpp"

namespace pecia::batch {
namespace {

/// Blocks that two prompts have in common.
int64_t common_blocks(const PromptPrefix& a, const PromptPrefix& b) {
  const auto [end, other] = std::ranges::mismatch(a.hashes, b.hashes);
  return end - a.hashes.begin();
}

/// Neighbours in sorted order that begin alike. The group is of those that the beginning spares
/// tokens.
struct Interval {
  size_t begin = 0, end = 0;
  int64_t tokens = 0;
};

/// What to form below a node of the tree of beginnings, and the tokens that it saves.
struct Choice {
  double saved = 0;
  std::list<Interval> groups;

  void take(Choice&& other) {
    saved += other.saved;
    groups.splice(groups.end(), other.groups);
  }
};

/// The tree of beginnings, visited from the leaves up without being stored: a node is an interval
/// of the sorted prompts whose neighbours have this number of blocks in common.
class Search {
 public:
  Search(const std::vector<PromptPrefix>& sorted, const PrefixRules& rules)
      : sorted_(sorted), rules_(rules) {}

  Choice run() {
    open_.push_back({});
    for (size_t i = 1; i <= sorted_.size(); ++i) {
      const int64_t common =
          i < sorted_.size() ? common_blocks(sorted_[i - 1], sorted_[i]) : int64_t{0};
      size_t begin = i - 1;
      Choice below;
      while (open_.back().blocks > common) {
        open_.back().below.take(std::move(below));
        begin = open_.back().begin;
        below = better(open_.back(), i);
        open_.pop_back();
      }
      if (open_.back().blocks < common) open_.push_back({common, begin, {}});
      open_.back().below.take(std::move(below));
    }
    return std::move(open_.front().below);
  }

 private:
  struct Node {
    int64_t blocks = 0;
    size_t begin = 0;
    Choice below;
  };

  /// The node as one group, or what is chosen below it. A prompt is looked at in each node above
  /// it, at most as often as it has hashes.
  Choice better(Node& node, size_t end) const {
    const int64_t tokens = node.blocks * rules_.block;
    double saved = -static_cast<double>(tokens), all = 0;
    for (size_t i = node.begin; i < end; ++i) {
      const int64_t spared = sorted_[i].spared_by(tokens);
      if (spared <= 0) continue;
      saved += static_cast<double>(spared);
      all += static_cast<double>(sorted_[i].prompt_tokens);
    }
    if (saved < rules_.least_saved * all || saved <= node.below.saved) return std::move(node.below);
    return {saved, {{node.begin, end, tokens}}};
  }

  const std::vector<PromptPrefix>& sorted_;
  const PrefixRules& rules_;
  std::vector<Node> open_;
};

}  // namespace

std::vector<uint64_t> prefix_hashes(std::span<const int32_t> tokens, int64_t block, uint64_t kind) {
  std::vector<uint64_t> hashes;
  uint64_t hash = kind;
  for (int64_t end = block; end < std::ssize(tokens); end += block) {
    const auto bytes = std::as_bytes(tokens.subspan(end - block, block));
    hash = mix(hash, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    hashes.push_back(hash);
  }
  return hashes;
}

PrefixGroups::PrefixGroups(std::vector<PromptPrefix> prompts, const PrefixRules& rules)
    : most_branches_(rules.most_branches) {
  std::ranges::sort(prompts, [](const PromptPrefix& a, const PromptPrefix& b) {
    return std::tie(a.hashes, a.request) < std::tie(b.hashes, b.request);
  });
  for (const PromptPrefix& prompt : prompts)
    other_ += static_cast<double>(prompt.prompt_tokens + prompt.answer_tokens);
  for (const Interval& found : Search(prompts, rules).run().groups) {
    Group& group = groups_.emplace_back();
    group.prefix.tokens = found.tokens;
    for (size_t i = found.begin; i < found.end; ++i) {
      const PromptPrefix& prompt = prompts[i];
      if (prompt.spared_by(found.tokens) <= 0) continue;
      group.prefix.requests.push_back(prompt.request);
      group.branches += prompt.branches;
      group.own_tokens +=
          static_cast<double>(prompt.tokens_after(found.tokens) + prompt.answer_tokens);
      other_ -= static_cast<double>(prompt.prompt_tokens + prompt.answer_tokens);
    }
    std::ranges::sort(group.prefix.requests);
  }
}

/// Parts of which none has more than `most` tokens to compute; at most one for each request.
double PrefixGroups::Group::parts(double most) const {
  if (most <= shared()) return requests();
  return std::clamp(std::ceil(own_tokens / (most - shared())), 1.0, requests());
}

/// The fewest tokens that the busiest replica must compute, if the groups are divided for it and all
/// other work fills gaps.
double PrefixGroups::busiest_tokens(int replicas) const {
  double least = 0, most = other_;
  for (const Group& group : groups_) {
    least = std::max(least, group.shared());
    most += group.shared() + group.own_tokens;
  }
  const auto fits = [&](double tokens) {
    double sum = other_;
    for (const Group& group : groups_) {
      const double parts = group.parts(tokens);
      if (parts > replicas) return false;
      sum += parts * group.shared() + group.own_tokens;
    }
    return sum <= replicas * tokens;
  };
  constexpr int halvings = 40;  // to a token
  for (int i = 0; i < halvings; ++i) {
    const double middle = 0.5 * (least + most);
    (fits(middle) ? most : least) = middle;
  }
  return most;
}

std::vector<SharedPrefix> PrefixGroups::divided(int parts) const {
  const double most = busiest_tokens(parts);
  std::vector<SharedPrefix> found;
  for (const Group& group : groups_) {
    const auto& requests = group.prefix.requests;
    const auto needed = (group.branches + most_branches_ - 1) / most_branches_;
    const int64_t pieces = std::min<int64_t>(
        std::ssize(requests), std::max<int64_t>(needed, std::llround(group.parts(most))));
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const auto at = [&](int64_t of) {
        return requests.begin() + of * std::ssize(requests) / pieces;
      };
      if (at(piece + 1) - at(piece) > 1)
        found.push_back({group.prefix.tokens, {at(piece), at(piece + 1)}});
    }
  }
  std::ranges::sort(found, {}, [](const SharedPrefix& prefix) { return prefix.requests.front(); });
  return found;
}

std::vector<SharedPrefix> find_prefixes(std::vector<PromptPrefix> prompts,
                                        const PrefixRules& rules) {
  return PrefixGroups(std::move(prompts), rules).divided(rules.parts);
}

}  // namespace pecia::batch
