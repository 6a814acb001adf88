// SPDX-License-Identifier: Apache-2.0
/* The functions of NVIDIA's driver (libcuda.so.1) that cuDNN looks up before it compiles a kernel.
 * A machine without a GPU has none; with these a kernel is compiled, "loaded" and never run. */

#include <stddef.h>

enum { success = 0, no_device = 100 };

int cuLibraryLoadData(void** library, const void* code, void* options, void* values, unsigned count,
                      void* others, void* other_values, unsigned other_count) {
  (void)code, (void)options, (void)values, (void)count, (void)others, (void)other_values,
      (void)other_count;
  static int loaded;
  *library = &loaded;
  return success;
}
int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  (void)name;
  *kernel = library;
  return success;
}
int cuLibraryUnload(void* library) {
  (void)library;
  return success;
}
int cuModuleLoadData(void** module, const void* code) {
  return cuLibraryLoadData(module, code, NULL, NULL, 0, NULL, NULL, 0);
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  return cuLibraryGetKernel(function, module, name);
}
int cuModuleUnload(void* module) {
  return cuLibraryUnload(module);
}
int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) {
  (void)attribute, (void)value, (void)kernel, (void)device;
  return success;
}
int cuKernelGetAttribute(int* value, int attribute, void* kernel, int device) {
  (void)attribute, (void)kernel, (void)device;
  *value = 0;
  return success;
}
int cuKernelGetFunction(void** function, void* kernel) {
  *function = kernel;
  return success;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  (void)function, (void)attribute, (void)value;
  return success;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function, int threads,
                                                size_t shared_bytes) {
  (void)function, (void)threads, (void)shared_bytes;
  *blocks = 1;
  return success;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return success;
}
int cuGetErrorName(int error, const char** name) {
  (void)error;
  *name = "an error of the driver's double";
  return success;
}
int cuGetErrorString(int error, const char** text) {
  return cuGetErrorName(error, text);
}

/* Looked up, but of no use without a device. */
#define PECIA_NO_DEVICE(name) \
  int name(void) {            \
    return no_device;         \
  }
PECIA_NO_DEVICE(cuCtxGetCurrent)
PECIA_NO_DEVICE(cuCtxGetLimit)
PECIA_NO_DEVICE(cuCtxPopCurrent)
PECIA_NO_DEVICE(cuCtxPushCurrent)
PECIA_NO_DEVICE(cuDeviceGet)
PECIA_NO_DEVICE(cuDeviceGetCount)
PECIA_NO_DEVICE(cuLaunchCooperativeKernel)
PECIA_NO_DEVICE(cuLaunchKernel)
PECIA_NO_DEVICE(cuLaunchKernelEx)
PECIA_NO_DEVICE(cuLibraryLoadFromFile)
PECIA_NO_DEVICE(cuLinkAddData)
PECIA_NO_DEVICE(cuLinkComplete)
PECIA_NO_DEVICE(cuLinkCreate)
PECIA_NO_DEVICE(cuLinkDestroy)
PECIA_NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
PECIA_NO_DEVICE(cuStreamGetCtx)
PECIA_NO_DEVICE(cuLibraryGetGlobal)
PECIA_NO_DEVICE(cuTensorMapEncodeIm2col)
PECIA_NO_DEVICE(cuTensorMapEncodeTiled)
