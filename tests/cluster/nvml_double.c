// SPDX-License-Identifier: Apache-2.0
// The functions of NVML that count energy, of one GPU that takes 250 J between two readings.
#include <string.h>

static unsigned long long taken_mj = 1000000;

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  const int not_found = 6;
  *device = &taken_mj;
  return strcmp(uuid, "GPU-double") == 0 ? 0 : not_found;
}

int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* energy_mj) {
  *energy_mj = *(unsigned long long*)device;
  taken_mj += 250000;
  return 0;
}
