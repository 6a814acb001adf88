/// What the job language knows and this version does not do, refused by name.

#include "kernels/api/backend.hpp"
#include "lib/core/error.hpp"
#include "lib/runtime/job.hpp"

namespace pecia::runtime {
namespace {

[[noreturn]] void refuse(std::string_view key, std::string_view value, std::string_view nearest) {
  fail<Unsupported>("{}: {} is not in this version; use {}", key, value, nearest);
}

}  // namespace

void refuse_on_gpus(const Job& job) {
  if (job.reproducible == Reproducible::layout)
    fail<Unsupported>(
        "reproducible: layout on GPUs is not in this version; use reproducible: run, or backend: "
        "cpu");
  if (job.model.compute == Precision::fp32 && job.model.dtype != Precision::fp32)
    fail<Unsupported>(
        "model.compute: fp32 on GPUs multiplies weights of that type alone in this version; use "
        "model.dtype: fp32, or compute: auto");
}

void refuse_unimplemented(const Job& job) {
  const bool on_gpus = job.backend == BackendKind::cuda;
  if (on_gpus && !kernels::has_cuda())
    fail<Unsupported>(
        "backend: cuda: this pecia was built without CUDA; use backend: cpu, or build the preset "
        "cuda");
  if (on_gpus) refuse_on_gpus(job);
  for (const Precision precision : {Precision::fp8, Precision::int8})
    if (job.model.dtype == precision) refuse("model.dtype", name_of(precision), "dtype: bf16");
  if (job.model.compute == Precision::fp8) refuse("model.compute", "fp8", "compute: auto");
  if (job.model.compute == Precision::bf16 && !on_gpus)
    refuse("model.compute", "bf16", "compute: fp32");
  if (job.reproducible == Reproducible::layout && job.batch.policy == Policy::chunked)
    fail<Unsupported>(
        "batch.policy: chunked with reproducible: layout is not in this version: where a prompt is "
        "cut depends on what else is in the batch; use policy: prefill_first");
}

}  // namespace pecia::runtime
