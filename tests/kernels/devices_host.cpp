#include "tests/kernels/tensors.hpp"

namespace pecia::test {

std::vector<std::string> every_device() {
  return {"reference", "cpu", "cpu_3_threads"};
}

std::vector<std::string> every_attention_device() {
  return {"cpu", "cpu_3_threads"};
}

Device make_device(const std::string& name) {
  return make_host_backend(name);
}

}  // namespace pecia::test
