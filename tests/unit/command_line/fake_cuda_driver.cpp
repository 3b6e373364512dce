// Stands in for libcuda.so.1: four devices, and what it was asked for.
extern "C" {
int fake_init_result = 0, fake_num_inits = 0, fake_context_device = -1;

int cuInit(unsigned) {
  ++fake_num_inits;
  return fake_init_result;
}

int cuDeviceGetCount(int* count) {
  *count = 4;
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = 100 + ordinal;
  return 0;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &fake_context_device;
  fake_context_device = device - 100;
  return 0;
}
}
