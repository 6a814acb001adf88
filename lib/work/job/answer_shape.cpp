// SPDX-License-Identifier: Apache-2.0
#include "lib/work/job/answer_shape.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "lib/base/core/error.hpp"
#include "lib/files/grammar/grammars.hpp"

namespace pecia::job {

std::string answer_shape(const Job& job) {
  const Job::Generation& generation = job.generation;
  if (generation.regex) return grammar::shape_of_regex(*generation.regex);
  if (!generation.choice.empty()) return grammar::shape_of_choice(generation.choice);
  if (!generation.schema) return "";
  std::ifstream file(*generation.schema, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || text.empty())
    fail<InputError>("generation.schema: {} cannot be read: {}", generation.schema->string(),
                     text.empty() && file ? "it is empty" : std::strerror(errno));
  try {
    return grammar::shape_of_schema(text);
  } catch (const InputError& error) {
    fail<InputError>("generation.schema: {}: {}", generation.schema->string(), error.what());
  }
}

}  // namespace pecia::job
