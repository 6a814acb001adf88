// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/mask_tokens_kernel.cuh"
#include "kernels/cuda/shared/elementwise.cuh"

namespace pecia::kernels::cuda {

void mask_tokens(const MaskTokensArgs& args, Context& context, device::Stream& stream) {
  const auto logits = matrix<float>(args.logits);
  if (logits.rows == 0 || logits.columns == 0) return;
  const uint32_t* const words = context.staging.send_array(args.words, stream);
  launch(stream, grid_of_rows(logits.rows, logits.columns), mask_tokens_kernel, words,
         args.words_of_row(), args.first_token, logits);
}

}  // namespace pecia::kernels::cuda
