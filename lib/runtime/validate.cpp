#include "lib/runtime/validate.hpp"

#include "lib/model/weights.hpp"
#include "lib/runtime/inputs.hpp"

namespace pecia::runtime {

model::ModelConfig read_model_config(const Job& job) {
  model::ModelConfig config = model::read_config(job.model.path);
  if (job.model.rope_scaling)
    model::extend_context(config, job.model.rope_scaling->kind, job.model.rope_scaling->factor);
  return config;
}

std::optional<DType> resident_dtype(const Job& job) {
  if (!job.model.dtype) return {};
  switch (*job.model.dtype) {
    case Precision::fp32:
      return DType::fp32;
    case Precision::bf16:
      return DType::bf16;
    case Precision::fp16:
      return DType::fp16;
    case Precision::fp8:
    case Precision::int8:
      break;
  }
  fail<Unsupported>("model.dtype {} is not in this version; use auto, fp32, bf16 or fp16",
                    name_of(*job.model.dtype));
}

void validate_inputs(const Job& job) {
  const model::ModelConfig config = read_model_config(job);
  const model::Weights weights(config, io::Checkpoint(job.model.path), {});
  const Inputs inputs(job, config);
}

}  // namespace pecia::runtime
