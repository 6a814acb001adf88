// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "lib/work/job/job.hpp"

namespace pecia::job {

/// The shape that the job asks of every answer, as grammar::Grammars takes it; "": none. Throws
/// InputError where the schema's file cannot be read, or is no JSON.
std::string answer_shape(const Job& job);

}  // namespace pecia::job
