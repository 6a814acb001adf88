// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Keeps HDF5 from what lies outside of a file. A file may say that its data are in other files, and
/// HDF5 then opens these, whatever they are: a shard could bring any file of its reader into the
/// results. It may also ask for a filter that HDF5 loads as code.

#include <hdf5.h>

#include <string>

namespace pecia::io {

/// Opens a dataset of `file`; the caller owns the identifier. `where` begins error messages. Throws
/// InputError, before any other file is opened, where an external link leads to the dataset, where
/// its data are in other files, or where it has a filter that is not one of HDF5's own.
hid_t open_inside(hid_t file, const char* name, const std::string& where);

}  // namespace pecia::io
