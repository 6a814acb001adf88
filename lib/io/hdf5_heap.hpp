// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Variable-length text, fetched from the file's global heap without HDF5's own reader, which goes
/// round for ever in a damaged heap (1.10.8).
///
/// Format: HDF5 File Format Specification, III.E (global heap) and IV.B (references into it).

#include <hdf5.h>

#include <array>
#include <cstddef>
#include <string>

namespace pecia::io {

/// What stands in a dataset or attribute for one text.
using HeapReference = std::array<std::byte, 16>;

/// A memory type that gives HeapReferences where the file has variable-length strings. Owned by the
/// library; valid until the program ends.
hid_t heap_reference_type();

/// The text behind a reference. `object` is any open object of the file; `where` begins messages.
/// InputError where the heap is damaged.
std::string heap_text(hid_t object, const HeapReference& reference, const std::string& where);

}  // namespace pecia::io
