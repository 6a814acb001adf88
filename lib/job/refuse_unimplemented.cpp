// SPDX-License-Identifier: Apache-2.0
/// Refuses, by name, the settings that the job language has and this version does not implement.

#include "kernels/api/backend.hpp"
#include "lib/core/error.hpp"
#include "lib/job/job.hpp"

namespace pecia::job {
namespace {

bool is_integer(std::optional<Precision> precision) {
  return precision == Precision::int8 || precision == Precision::int4;
}

/// Refuses settings that work on no GPU.
void refuse_on_any_gpu(const Job& job) {
  if (is_integer(job.model.dtype))
    fail<Unsupported>(
        "model.dtype: {} is for CPUs in this version; use dtype: fp8 or bf16, or backend: cpu",
        name_of(*job.model.dtype));
  if (job.reproducible == Reproducible::layout && job.model.dtype == Precision::fp8)
    fail<Unsupported>(
        "reproducible: layout with model.dtype: fp8 is not in this version: a rank rounds its part "
        "of a row by that part's own maximum; use dtype: bf16, or reproducible: run");
  if (job.model.compute == Precision::fp32 && job.model.dtype != Precision::fp32)
    fail<Unsupported>(
        "model.compute: fp32 on GPUs multiplies weights of that type alone in this version; use "
        "model.dtype: fp32, or compute: auto");
  if (job.model.compute == Precision::bf16 && job.model.dtype == Precision::fp8)
    fail<Unsupported>(
        "model.compute: bf16 does not multiply weights of fp8 in this version; use compute: auto, "
        "or model.dtype: bf16");
}

}  // namespace

void refuse_on_gpus(const Job& job, int compute_capability) {
  refuse_on_any_gpu(job);
  constexpr int first_with_fp8 = 89;
  if (job.model.dtype == Precision::fp8 && compute_capability < first_with_fp8)
    fail<Unsupported>(
        "model.dtype: fp8 needs GPUs of compute capability 8.9 or newer, this one has {}.{}; use "
        "dtype: bf16",
        compute_capability / 10, compute_capability % 10);
}

void refuse_on_cpus(const Job& job) {
  if (job.reproducible == Reproducible::layout && is_integer(job.model.dtype))
    fail<Unsupported>(
        "reproducible: layout with model.dtype: {} is not in this version; use dtype: bf16, or "
        "reproducible: run",
        name_of(*job.model.dtype));
  if (job.model.dtype == Precision::int4 && job.parallel.sp * job.parallel.tp > 1)
    fail<Unsupported>(
        "model.dtype: int4 with parallel.sp {} and parallel.tp {} is not in this version: a group "
        "of 128 numbers is not cut; use cp and dp, or dtype: int8",
        job.parallel.sp, job.parallel.tp);
  if (job.model.compute == Precision::bf16) {
    const Precision held = job.model.dtype.value_or(Precision::bf16);
    if (held != Precision::bf16 && !is_integer(held))
      fail<Unsupported>(
          "model.compute: bf16 multiplies weights of bf16, int8 and int4 alone on CPUs; use "
          "model.dtype: bf16, or compute: auto");
    if (job.reproducible == Reproducible::layout)
      fail<Unsupported>(
          "model.compute: bf16 with reproducible: layout is not in this version on CPUs; use "
          "compute: auto");
  }
  if (job.model.dtype == Precision::fp8)
    fail<Unsupported>(
        "model.dtype: fp8 is for GPUs in this version; use dtype: bf16, or backend: cuda");
}

void refuse_unimplemented(const Job& job) {
  const bool on_gpus = job.backend == BackendKind::cuda;
  if (on_gpus && !kernels::has_cuda())
    fail<Unsupported>(
        "backend: cuda: this pecia was built without CUDA; use backend: cpu, or build the preset "
        "cuda");
  if (on_gpus) refuse_on_any_gpu(job);
  if (job.backend == BackendKind::cpu || !kernels::has_cuda()) refuse_on_cpus(job);
  if (job.model.compute == Precision::fp8 && job.model.dtype != Precision::fp8)
    fail<Unsupported>(
        "model.compute: fp8 multiplies weights of that type alone; use model.dtype: fp8, or "
        "compute: auto");
  if (job.batch.objective == Objective::ttft && !job.parallel.cp.elastic)
    fail<Unsupported>(
        "batch.objective: ttft without parallel.cp: elastic is not in this version: other runs "
        "read "
        "prompts in batch.order; use cp: elastic, or objective: auto");
  if (job.reproducible == Reproducible::layout && job.batch.policy == Policy::chunked)
    fail<Unsupported>(
        "batch.policy: chunked with reproducible: layout is not in this version: where a prompt is "
        "cut depends on what else is in the batch; use policy: prefill_first");
}

}  // namespace pecia::job
