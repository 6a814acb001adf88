// SPDX-License-Identifier: Apache-2.0
#include "lib/base/device/joint_ranks.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::device {
namespace {

using Act = JointRanks::Act;

/// A rank's proposal as it travels; its words follow: why not, or the last work.
struct Header {
  int64_t works;
  uint64_t digest;
  Act act;
  int64_t graph;
};

std::vector<std::byte> message_of(const Header& header, std::string_view words) {
  std::vector<std::byte> message(sizeof header + words.size());
  std::memcpy(message.data(), &header, sizeof header);
  std::memcpy(message.data() + sizeof header, words.data(), words.size());
  return message;
}

Header header_of(const std::vector<std::byte>& message) {
  Header header;
  PECIA_CHECK(message.size() >= sizeof header, "a proposal of {} bytes", message.size());
  std::memcpy(&header, message.data(), sizeof header);
  return header;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string_view words_of(const std::vector<std::byte>& message) {
  return text_of(std::span(message).subspan(sizeof(Header)));
}

/// FNV-1a, going on from `digest`.
uint64_t digest_with(uint64_t digest, std::string_view words) {
  for (const char letter : words)
    digest = (digest ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  return (digest ^ words.size()) * 0x100000001b3u;
}

}  // namespace

void JointRanks::add_work(std::string words) {
  if (!broken_.empty()) fail<SystemError>("{}", broken_);
  ++works_;
  digest_ = digest_with(digest_, words);
  last_work_ = std::move(words);
}

std::vector<std::vector<std::byte>> JointRanks::gathered(std::span<const std::byte> mine) {
  try {
    return all_gather(mine);
  } catch (const Error& error) {
    broken_ = fmt::format("no agreement on a graph with {}: {}", last_work_, error.what());
    fail<SystemError>("{}", broken_);
  }
}

JointRanks::Act JointRanks::agree(const Proposal& mine) {
  return least_of(
      gathered(message_of({works_, digest_, mine.act, mine.graph},
                          mine.act == Act::never ? std::string_view(mine.why_not) : last_work_)));
}

JointRanks::Act JointRanks::least_of(const std::vector<std::vector<std::byte>>& messages) {
  const Header first = header_of(messages.front());
  Act least = Act::launch;
  bool same_proposals = true, same_graph = true, same_works = true;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    const Header header = header_of(messages[rank]);
    settled_ = std::max(settled_, header.works);
    same_works = same_works && header.works == first.works;
    same_graph = same_graph && header.graph == first.graph;
    same_proposals = same_proposals && header.act == first.act;
    if (header.act == Act::never && least != Act::never)
      why_not_ = fmt::format("rank {} of {}: {}", rank, messages.size(), words_of(messages[rank]));
    least = std::min(least, header.act);
    for (size_t other = 0; other < rank; ++other) {
      const Header before = header_of(messages[other]);
      if (before.works != header.works || before.digest == header.digest) continue;
      broken_ = fmt::format(
          "ranks {} and {} of {} have different collectives up to number {}: the last one is {} "
          "and {}",
          other, rank, messages.size(), header.works, words_of(messages[other]),
          words_of(messages[rank]));
      fail<InvalidArgument>("{}", broken_);
    }
  }
  if (!same_works || !same_proposals || !same_graph) ++disagreements_;
  if (least == Act::never) return least;
  if (!same_works) return Act::piecemeal;
  return least == Act::launch && !same_graph ? Act::make : least;
}

int64_t JointRanks::agree_on_made(const std::string& error) {
  const auto errors = gathered(std::as_bytes(std::span(error)));
  for (size_t rank = 0; rank < errors.size() && why_not_.empty(); ++rank)
    if (!errors[rank].empty())
      why_not_ = fmt::format("rank {} of {}: {}", rank, errors.size(), text_of(errors[rank]));
  return why_not_.empty() ? ++graphs_ : 0;
}

}  // namespace pecia::device
