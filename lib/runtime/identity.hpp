#pragma once
/// What makes two runs the same run: model, inputs, sampling, precision. Not: ranks, threads,
/// layout.

#include <string>

#include "lib/io/safetensors.hpp"
#include "lib/runtime/inputs.hpp"
#include "lib/runtime/resources.hpp"

namespace pecia::runtime {

/// A JSON object. Reads every input shard once, for its sha256.
std::string identity(const Job& job, const model::ModelConfig& config,
                     const io::Checkpoint& checkpoint, DType kv_dtype);

/// Throws InputError listing each key whose value differs, before and now, and what to do.
void require_same_identity(const std::string& before, const std::string& now,
                           const std::filesystem::path& results);

}  // namespace pecia::runtime
