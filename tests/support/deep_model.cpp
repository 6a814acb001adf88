// SPDX-License-Identifier: Apache-2.0
#include "tests/support/deep_model.hpp"

#include <nlohmann/json.hpp>

#include "lib/files/checkpoint/safetensors.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/safetensors_writer.hpp"

namespace pecia::test {

void write_deep_model(const std::string& golden, int64_t layers, const TempFolder& folder,
                      const ChangeTensor& change) {
  const std::filesystem::path from = test::golden(golden);
  auto config = nlohmann::json::parse(text_of(from / "config.json"));
  const auto own_layers = config.at("num_hidden_layers").get<int64_t>();
  config["num_hidden_layers"] = layers;
  if (config.contains("max_window_layers"))
    config["max_window_layers"] = config["max_window_layers"].get<int64_t>() * layers / own_layers;
  folder.write("config.json", config.dump());
  const io::Checkpoint checkpoint(from);
  const std::string before = "model.layers.";
  std::vector<NamedTensor> tensors;
  for (const std::string& name : checkpoint.names()) {
    const TensorView tensor = checkpoint.tensor(name);
    std::vector<float> values;
    for (int64_t i = 0; i < tensor.elements(); ++i)
      values.push_back(load_as_float(tensor.data(), tensor.dtype(), i));
    if (change) change(name, values);
    std::vector<int64_t> shape{tensor.rows()};
    if (tensor.rank() == 2) shape.push_back(tensor.size(1));
    if (!name.starts_with(before)) {
      tensors.push_back(float_tensor(name, DType::fp32, shape, values));
      continue;
    }
    const size_t end = name.find('.', before.size());
    const int64_t first = std::stoll(name.substr(before.size(), end - before.size()));
    for (int64_t layer = first; layer < layers; layer += own_layers)
      tensors.push_back(float_tensor(before + std::to_string(layer) + name.substr(end), DType::fp32,
                                     shape, values));
  }
  write_safetensors(folder / "model.safetensors", tensors);
}

}  // namespace pecia::test
