// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/agree.hpp"

#include <exception>

#include "lib/base/core/error.hpp"

namespace pecia::comm {
namespace {

enum class Verdict : char { fine = 'f', input = 'i', error = 'e' };

std::vector<std::string> all_texts(comm::Communicator& world, const std::string& mine) {
  std::vector<std::string> texts;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(mine))))
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return texts;
}

}  // namespace

void together(comm::Communicator& world, const std::function<void()>& step) {
  Verdict verdict = Verdict::fine;
  std::string message;
  try {
    step();
  } catch (const InputError& error) {
    verdict = Verdict::input, message = error.what();
  } catch (const std::exception& error) {
    verdict = Verdict::error, message = error.what();
  }
  const auto texts = all_texts(world, static_cast<char>(verdict) + message);
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].front() == static_cast<char>(Verdict::fine)) continue;
    message = texts[rank].substr(1);
    if (texts[rank].front() == static_cast<char>(Verdict::input)) throw InputError(message);
    fail<SharedError>("rank {}: {}", rank, message);
  }
}

void require_same(comm::Communicator& world, const std::string& what, const std::string& text) {
  const auto texts = all_texts(world, text);
  for (size_t rank = 1; rank < texts.size(); ++rank)
    if (texts[rank] != texts[0])
      fail<InputError>(
          "ranks 0 and {} have different {}; start all ranks with the same program, job file and "
          "file system",
          rank, what);
}

}  // namespace pecia::comm
