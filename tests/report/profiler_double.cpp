// SPDX-License-Identifier: Apache-2.0
/// A profiler that NVTX loads (NVTX_INJECTION64_PATH): it writes down what ranges begin and end.

#include <nvtx3/nvToolsExt.h>

#include <string>

namespace {

std::string seen;  // "name(" for a beginning, ")" for an end

int push(const char* name) {
  seen += std::string(name) + "(";
  return 0;
}
int pop() {
  seen += ")";
  return 0;
}

}  // namespace

extern "C" {

/// What ranges were seen since the last call.
__attribute__((visibility("default"))) const char* pecia_seen_ranges() {
  static std::string told;
  told.swap(seen);
  seen.clear();
  return told.c_str();
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE_RangePop)
    return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
}
