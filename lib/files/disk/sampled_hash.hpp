// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A hash of safetensors files that reads a small part of them.

#include <filesystem>
#include <string>
#include <vector>

namespace pecia::io {

/// sha256 (hex) of the files' names and sizes, of the first and the last 4 KiB of every tensor
/// (less of each where there are more than 4096 tensors), and of 2048 blocks of 4 KiB that are
/// evenly spaced over all files. It reads at most some 40 MiB, from the files themselves. Files of
/// up to 8 MiB together are read whole.
///
/// It tells apart models that were trained, converted, rounded or cut off differently, which differ
/// in all of a tensor or from some byte on. It does not see a change between the sampled blocks: a
/// few values inside of a large tensor, or a damaged disk block.
///
/// Throws InputError where a file is no whole safetensors file.
std::string sampled_sha256(const std::vector<std::filesystem::path>& files);

}  // namespace pecia::io
