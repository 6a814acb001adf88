// SPDX-License-Identifier: Apache-2.0
/// Families whose modules have rows of several matrices, stored as codes that GPUs keep, on the CUDA
/// backend's own code: the log-probabilities differ from products of the codes' numbers in fp32 on the CPU
/// about as much as products of the numbers in bf16 do: 0.7 to 1.5 times as much in these small models. A wrong
/// scale or row differs far more.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/files/checkpoint/safetensors.hpp"
#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/support/full_matrix.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/prediction_difference.hpp"
#include "tests/support/replica.hpp"
#include "tests/support/stored_matrices.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::test {
namespace {

/// A golden checkpoint's shapes with other numbers. What has rows of no whole blocks, and what makes
/// decays by itself, stays bf16.
void write_as_codes(const std::filesystem::path& golden_folder, const TempFolder& folder,
                    Stored stored) {
  std::ifstream file(golden_folder / "config.json");
  std::string config(std::istreambuf_iterator<char>(file), {});
  config.insert(config.rfind('}'), ", \"quantization_config\": " + quantization_of(stored).dump());
  folder.write("config.json", config);  // as text: JSON has no Infinity
  const io::Checkpoint checkpoint(golden_folder);
  std::vector<NamedTensor> tensors;
  uint64_t seed = 1;
  for (const std::string& name : checkpoint.names()) {
    const TensorView tensor = checkpoint.tensor(name);
    const bool is_matrix = tensor.rank() == 2 && name.find(".layers.") != std::string::npos;
    const bool of_decay = name.find("in_proj_a.") != std::string::npos ||
                          name.find("in_proj_b.") != std::string::npos;
    if (is_matrix && !of_decay && tensor.size(1) % 16 == 0) {
      add_matrix(tensors, stored, name.substr(0, name.rfind(".weight")), tensor.size(0),
                 tensor.size(1), seed++);
      continue;
    }
    NamedTensor copy{name, tensor.dtype() == DType::bf16 ? "BF16" : "F32", {}, {}};
    for (int axis = 0; axis < tensor.rank(); ++axis) copy.shape.push_back(tensor.size(axis));
    copy.bytes.resize(tensor.elements() * size_of(tensor.dtype()));
    std::memcpy(copy.bytes.data(), tensor.data(), copy.bytes.size());
    tensors.push_back(std::move(copy));
  }
  write_safetensors(folder / "model.safetensors", tensors);
}

using Case = std::tuple<std::string, Stored>;

class CodesOfFamilies : public testing::TestWithParam<Case> {};

TEST_P(CodesOfFamilies, GiveWhatTheirNumbersGive) {
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  const auto alone = all->split(all->rank(), 0);
  const auto& [family, stored] = GetParam();
  const TempFolder model;
  write_as_codes(golden(family), model, stored);
  const model::ModelConfig config = model::read_config(model.path());
  std::vector<batch::Request> requests;
  for (const int64_t length : {1, 80, 37})
    requests.push_back(
        greedy_request(std::ssize(requests), random_tokens(length, config.vocab, 5), 4));
  ReplicaSettings settings;
  settings.logprobs = settings.prompt_logprobs = -1;
  settings.place = TestPlace::host;
  const auto wanted = run_requests(*alone, model.path(), requests, settings);
  settings.place =
      place_of_tests() == TestPlace::host ? TestPlace::emulated_staged : place_of_tests();
  settings.kv_dtype = DType::bf16;
  settings.as_stored = true;
  const auto off = [&] {
    return prediction_difference(run_requests(*all, model.path(), requests, settings), wanted,
                                 config.vocab);
  };
  for (const parallel::ModePair& pair :
       every_nth(parallel::legal_modes(all->size(), resources::shape_of(config)), 0, 5)) {
    SCOPED_TRACE(fmt::format("{}, {} + {}", parallel::to_string(pair.degrees),
                             parallel::name_of(pair.prefill), parallel::name_of(pair.decode)));
    set_modes(settings, pair);
    settings.widened = true;
    const double of_numbers = off();
    settings.widened = false;
    const double of_codes = off();
    EXPECT_LE(of_codes, 2 * of_numbers);
    EXPECT_NE(of_codes, of_numbers) << "codes were widened at load";
  }
}

INSTANTIATE_TEST_SUITE_P(
    StoredAs, CodesOfFamilies,
    testing::Combine(testing::Values("qwen35-tied", "granitehybrid-dense", "phi3-longrope",
                                     "internlm2"),
                     testing::Values(Stored::fp8_blocks, Stored::nvfp4)),
    [](const testing::TestParamInfo<Case>& info) {
      return name_of_model({std::get<0>(info.param), 0}) + "_" + name_of(std::get<1>(info.param));
    });

}  // namespace
}  // namespace pecia::test
