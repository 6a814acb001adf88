// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads variable-length text from the file's global heap without HDF5's own reader, which loops
/// forever on a damaged heap (1.10.8).
///
/// Format: HDF5 File Format Specification, III.E (global heap) and IV.B (references into it).

#include <hdf5.h>

#include <array>
#include <cstddef>
#include <string>

namespace pecia::io {

/// The reference to one text that a dataset or attribute stores.
using HeapReference = std::array<std::byte, 16>;

/// A memory type that reads HeapReferences where the file has variable-length strings. The library
/// owns it; it is valid until the program ends.
hid_t heap_reference_type();

/// Reads the text behind a reference. `object` is any open object of the file; `where` begins error
/// messages. Throws InputError when the heap is damaged.
std::string heap_text(hid_t object, const HeapReference& reference, const std::string& where);

}  // namespace pecia::io
