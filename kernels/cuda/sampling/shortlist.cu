// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/sampling/scores.cuh"
#include "kernels/cuda/sampling/shortlist_kernels.cuh"

namespace pecia::kernels::cuda {
namespace {

/// A call's answers in one buffer, on the device and at the same distances on the host.
struct Lists {
  int64_t rows, num_candidates, num_top;
  double* log_sums;
  Candidate* candidates;
  TopToken* tops;

  static int64_t bytes(const ShortlistArgs& args) {
    return static_cast<int64_t>(args.log_sums.size_bytes() + args.candidates.size_bytes() +
                                args.tops.size_bytes());
  }
  Lists(device::Buffer& buffer, const ShortlistArgs& args)
      : rows(args.logits.rows()), num_candidates(args.num_candidates), num_top(args.num_top) {
    buffer.reserve(bytes(args));
    log_sums = buffer.as<double>();
    candidates = reinterpret_cast<Candidate*>(log_sums + rows);
    tops = reinterpret_cast<TopToken*>(candidates + rows * num_candidates);
  }
};

constexpr int threads_of_rows = 256;

Grid grid_over(int64_t rows) {
  return {.x = (rows + threads_of_rows - 1) / threads_of_rows, .threads = threads_of_rows};
}

void list_candidates(const ShortlistArgs& args, const float* logits, const RowSoftmax* softmax,
                     const Lists& to, Context& context, device::Stream& stream) {
  const int64_t vocab = args.logits.size(1);
  if (!args.wanted.empty()) {
    const int32_t* const wanted = context.staging.send_array(args.wanted, stream);
    return launch(stream, grid_over(to.rows), wanted_kernel, logits, wanted, softmax, to.rows,
                  vocab, args.first_token, to.candidates);
  }
  const Wishes wishes = upload(args.rows, args.first_token, vocab, context.staging, stream);
  const float* const scores = adjust(logits, wishes, to.rows, vocab, context, stream);
  if (args.num_candidates == 1)
    return launch(stream, {.x = to.rows, .threads = sampling_threads(vocab)}, best_candidate_kernel,
                  logits, scores, softmax, vocab, args.first_token, to.candidates);
  const Ranked ranked = rank_rows(scores, to.rows, vocab, context, stream);
  launch(stream, {.x = to.rows}, candidates_kernel, logits, ranked.sorted, ranked.tokens, softmax,
         vocab, args.first_token, args.num_candidates, to.candidates);
}

}  // namespace

void shortlist(const ShortlistArgs& args, Context& context, device::Stream& stream) {
  const int64_t rows = args.logits.rows(), vocab = args.logits.size(1);
  if (rows == 0) return;
  const auto* const logits = args.logits.as<const float>();
  const Lists lists(context.answers, args);
  const RowSoftmax* const softmax = softmax_of_rows(logits, rows, vocab, context, stream);
  launch(stream, grid_over(rows), log_sums_kernel, softmax, rows, lists.log_sums);
  list_candidates(args, logits, softmax, lists, context, stream);
  if (args.num_top > 0) {
    const Ranked ranked = rank_rows(logits, rows, vocab, context, stream);
    launch(stream, {.x = rows}, top_tokens_kernel, ranked.sorted, ranked.tokens, softmax, vocab,
           args.first_token, args.num_top, lists.tops);
  }
  const Lists from(context.host_answers, args);
  context.device.copy(context.host_answers.data(), context.answers.data(), Lists::bytes(args),
                      stream);
  stream.synchronize();
  std::copy_n(from.log_sums, args.log_sums.size(), args.log_sums.begin());
  std::copy_n(from.candidates, args.candidates.size(), args.candidates.begin());
  std::copy_n(from.tops, args.tops.size(), args.tops.begin());
}

}  // namespace pecia::kernels::cuda
