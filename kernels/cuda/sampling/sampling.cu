// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/sampling/scores.cuh"

namespace pecia::kernels::cuda {
namespace {

/// Where a call's answers are: on the device, and at the same distances in pinned memory.
struct Answers {
  int64_t rows, num_top, vocab;

  int64_t width() const { return num_top < 0 ? vocab : num_top; }
  int64_t top_tokens() const { return num_top > 0 ? rows * num_top : 0; }
  /// Elements of four bytes: tokens, log-probabilities, top tokens, top log-probabilities.
  int64_t count() const { return 2 * rows + top_tokens() + rows * width(); }
};

struct AnswerPointers {
  int32_t* tokens;
  float* logprobs;
  int32_t* top_tokens;
  float* top_logprobs;

  AnswerPointers(const device::Buffer& buffer, const Answers& answers)
      : tokens(buffer.as<int32_t>()),
        logprobs(buffer.as<float>() + answers.rows),
        top_tokens(tokens + 2 * answers.rows),
        top_logprobs(logprobs + answers.rows + answers.top_tokens()) {}
};

/// Of `args`' logits, before anything else is done to them: statistics, and the tops that are asked
/// for.
template <typename Args>
RowSoftmax* describe_rows(const Args& args, const Answers& answers, Context& context,
                          device::Stream& stream) {
  const auto* const logits = args.logits.template as<const float>();
  const int64_t rows = answers.rows, vocab = answers.vocab;
  context.answers.reserve(answers.count() * 4);
  const AnswerPointers to(context.answers, answers);
  RowSoftmax* const softmax = softmax_of_rows(logits, rows, vocab, context, stream);
  if (args.num_top < 0)
    launch(stream, grid_of_rows(rows, vocab), all_logprobs_kernel, logits, softmax, vocab,
           to.top_logprobs);
  if (args.num_top > 0) {
    const Ranked ranked = rank_rows(logits, rows, vocab, context, stream);
    launch(stream, {.x = rows}, tops_kernel, ranked.sorted, ranked.tokens, softmax, vocab,
           args.num_top, to.top_tokens, to.top_logprobs);
  }
  return softmax;
}

/// Waits for the answers and hands them over.
template <typename Args>
void return_answers(const Args& args, const Answers& answers, Context& context,
                    device::Stream& stream) {
  context.host_answers.reserve(answers.count() * 4);
  context.device.copy(context.host_answers.data(), context.answers.data(), answers.count() * 4,
                      stream);
  stream.synchronize();
  const AnswerPointers from(context.host_answers, answers);
  std::copy_n(from.logprobs, answers.rows, args.token_logprobs.begin());
  std::copy_n(from.top_tokens, answers.top_tokens(), args.top_tokens.begin());
  std::copy_n(from.top_logprobs, answers.rows * answers.width(), args.top_logprobs.begin());
}

void write_token_logprobs(const float* logits, const RowSoftmax* softmax, const int32_t* tokens,
                          const Answers& answers, Context& context, device::Stream& stream) {
  constexpr int threads = 256;
  launch(stream, {.x = (answers.rows + threads - 1) / threads, .threads = threads},
         token_logprob_kernel, logits, softmax, tokens, answers.rows, answers.vocab,
         AnswerPointers(context.answers, answers).logprobs);
}

}  // namespace

void sample(const SamplingArgs& args, Context& context, device::Stream& stream) {
  const Answers answers = {args.logits.rows(), args.num_top, args.logits.size(1)};
  if (answers.rows == 0) return;
  const auto* const logits = args.logits.as<const float>();
  const RowSoftmax* const softmax = describe_rows(args, answers, context, stream);
  const Wishes wishes = upload(args.rows, 0, answers.vocab, context.staging, stream);
  const float* const scores = adjust(logits, wishes, answers.rows, answers.vocab, context, stream);
  Ranked ranked = {};
  if (wishes.any_drawn) ranked = rank_rows(scores, answers.rows, answers.vocab, context, stream);
  int32_t* const tokens = AnswerPointers(context.answers, answers).tokens;
  launch(stream, {.x = answers.rows, .threads = sampling_threads(answers.vocab)}, choose_kernel,
         wishes.rows, softmax, scores, ranked.sorted, ranked.tokens, answers.vocab, tokens);
  write_token_logprobs(logits, softmax, tokens, answers, context, stream);
  return_answers(args, answers, context, stream);
  std::copy_n(context.host_answers.as<int32_t>(), answers.rows, args.tokens.begin());
}

void log_probs(const LogProbsArgs& args, Context& context, device::Stream& stream) {
  const Answers answers = {args.logits.rows(), args.num_top, args.logits.size(1)};
  if (answers.rows == 0) return;
  const RowSoftmax* const softmax = describe_rows(args, answers, context, stream);
  const int32_t* const tokens = context.staging.send_array(args.tokens, stream);
  write_token_logprobs(args.logits.as<const float>(), softmax, tokens, answers, context, stream);
  return_answers(args, answers, context, stream);
}

}  // namespace pecia::kernels::cuda
