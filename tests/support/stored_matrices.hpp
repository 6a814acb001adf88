// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Random matrices in the forms that checkpoints have, as numbers or as codes.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/safetensors_writer.hpp"

namespace pecia::test {

/// How the matrices of layers are stored: numbers of bf16, codes as compressed-tensors has them, codes
/// of int4 as GPTQ and AWQ have them, or NVFP4 of modelopt. The names of int4 say how many numbers share
/// a scale.
enum class Stored {
  bf16,
  int8,
  fp8_rows,
  fp8_blocks,
  int4_by_32,
  int4_by_64,
  int4_by_128,
  gptq,
  awq,
  nvfp4
};

/// For names of parameters.
std::string name_of(Stored stored);

/// bf16 of deviation 1/√in.
NamedTensor random_matrix(const std::string& name, int64_t out, int64_t in, uint64_t seed);

/// Adds the tensors of matrix NAME, which has the deviation of random_matrix.
void add_matrix(std::vector<NamedTensor>& to, Stored stored, const std::string& name, int64_t out,
                int64_t in, uint64_t seed);

/// What config.json says of the matrices of layers.
nlohmann::json quantization_of(Stored stored);

}  // namespace pecia::test
