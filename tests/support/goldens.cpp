#include "tests/support/goldens.hpp"

#include <cstdlib>

namespace pecia::test {

std::filesystem::path goldens_folder() {
  const char* const folder = std::getenv("PECIA_GOLDENS_FOLDER");
  return folder != nullptr ? folder : PECIA_GOLDENS;
}

}  // namespace pecia::test
