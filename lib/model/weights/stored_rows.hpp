// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where the rows of a matrix are in a checkpoint. A module may have the rows of several projections: of q, k
/// and v, of gate and up, of queries and their gates, or of a recurrence (recurrent_weights.hpp).

#include <string>
#include <vector>

#include "lib/model/weights/layer_weights.hpp"
#include "lib/model/weights/weight_loader.hpp"

namespace pecia::model {

/// Rows of a module, [rows, inputs of the matrix].
struct StoredRows {
  std::string module;                      ///< its whole name, without ".weight"
  int64_t rows = 0;                        ///< of all its projections
  std::vector<parallel::RowRange> blocks;  ///< of the module, which are the matrix's rows in turn

  /// The blocks of some rows of the matrix.
  std::vector<parallel::RowRange> of(parallel::RowRange wanted) const;
};

/// Of a matrix of a layer that is stored by itself or with others; of an expert that has modules of its
/// own. The matrices that are made of kv_b (latent_weights.hpp) have no rows there.
StoredRows stored_rows(const ModelConfig& config, MatrixKind kind, int64_t layer,
                       int64_t expert = 0);

/// A view of the matrix with its bias, whole and as stored, with a part for each block; without parts
/// where the module is stored as codes. Throws InputError as WeightLoader does.
LinearWeight read_numbers(const ModelConfig& config, WeightLoader& loader, MatrixKind kind,
                          int64_t layer, int64_t expert = 0);

}  // namespace pecia::model
