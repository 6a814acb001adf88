// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/command.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/pecia/printable.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"

namespace pecia::app {

std::string examples(std::initializer_list<const char*> commands) {
  std::string text = "Examples:";
  for (const char* command : commands) text += fmt::format("\n  {}", command);
  return text;
}

std::string text_of(const std::exception& error) {
  return printable_lines(error.what());
}

int reported(const std::function<int()>& work) {
  try {
    return work();
  } catch (const InputError& error) {
    fmt::print(stderr, "pecia: {}\n", text_of(error));
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "pecia: {}\n", text_of(error));
    return 1;
  }
}

int on_first_rank(comm::Communicator& world, const std::function<int()>& work) {
  const int mine = world.rank() == 0 ? reported(work) : 0;
  return static_cast<int>(world.all_reduce_max(mine));
}

std::vector<nlohmann::ordered_json> gather_json(comm::Communicator& world,
                                                const nlohmann::ordered_json& mine) {
  const std::string text = json_text(mine);
  std::vector<nlohmann::ordered_json> values;
  for (const auto& bytes : world.gather(std::as_bytes(std::span(text)), 0)) {
    values.push_back(parse_json<nlohmann::ordered_json>(
        {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  }
  return values;
}

std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (size_t begin = 0; begin < numbers.size();) {
    size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[begin]);
    if (end - begin > 1) text += fmt::format("-{}", numbers[end - 1]);
    begin = end;
  }
  return text;
}

}  // namespace pecia::app
