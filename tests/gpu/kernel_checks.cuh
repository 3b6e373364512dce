// What the tests of kernels share: counting checks, arrays between guards, random values, times of launches.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

inline int g_checks = 0;
inline int g_failures = 0;

inline void check(bool condition, const std::string& what) {
  ++g_checks;
  if (condition) return;
  ++g_failures;
  std::printf("FAILED: %s\n", what.c_str());
}

inline void require(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::printf("FAILED: %s: %s\n", what, cudaGetErrorString(result));
  std::exit(1);
}

// `count` elements on the device, `offset` elements behind a 256-byte boundary, between guards.
template <class T>
class DeviceArray {
 public:
  DeviceArray(const std::vector<T>& values, size_t offset) : count_(values.size()), begin_(kGuard + offset) {
    host_.assign(begin_ + count_ + kGuard, T(77));
    std::copy(values.begin(), values.end(), host_.begin() + static_cast<ptrdiff_t>(begin_));
    require(cudaMalloc(&base_, host_.size() * sizeof(T)), "cudaMalloc");
    require(cudaMemcpy(base_, host_.data(), host_.size() * sizeof(T), cudaMemcpyHostToDevice), "upload");
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(base_); }

  T* data() { return base_ + begin_; }

  // The elements; counts a failure when a guard was written over.
  std::vector<T> download(const std::string& name) {
    std::vector<T> all(host_.size());
    require(cudaMemcpy(all.data(), base_, all.size() * sizeof(T), cudaMemcpyDeviceToHost), name.c_str());
    for (size_t i = 0; i < all.size(); ++i) {
      if (i >= begin_ && i < begin_ + count_) continue;
      if (std::memcmp(&all[i], &host_[i], sizeof(T)) != 0) check(false, name + ": wrote outside its array");
    }
    return std::vector<T>(all.begin() + static_cast<ptrdiff_t>(begin_),
                          all.begin() + static_cast<ptrdiff_t>(begin_ + count_));
  }

 private:
  static constexpr size_t kGuard = 256 / sizeof(T);
  size_t count_, begin_;
  std::vector<T> host_;
  T* base_ = nullptr;
};

inline std::vector<float> uniform(size_t count, uint32_t seed, float low, float high) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> draw(low, high);
  std::vector<float> values(count);
  for (float& value : values) value = draw(engine);
  return values;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

inline uint16_t rounded(float value, ElementType type) {
  if (type == ElementType::kBFloat16) return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  return __half_as_ushort(__float2half_rn(value));
}

inline float widened(uint16_t bits, ElementType type) {
  return type == ElementType::kBFloat16 ? __bfloat162float(__ushort_as_bfloat16(bits))
                                        : __half2float(__ushort_as_half(bits));
}

inline void finish(cudaError_t launched, const std::string& name) {
  require(launched, name.c_str());
  require(cudaDeviceSynchronize(), name.c_str());
}

// Median of 11 launches after 3, in milliseconds.
template <class Launch>
double median_ms(Launch launch) {
  cudaEvent_t begin, end;
  require(cudaEventCreate(&begin), "cudaEventCreate");
  require(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<float> times;
  for (int i = 0; i < 14; ++i) {
    require(cudaEventRecord(begin), "cudaEventRecord");
    require(launch(), "launch");
    require(cudaEventRecord(end), "cudaEventRecord");
    require(cudaEventSynchronize(end), "cudaEventSynchronize");
    float ms = 0;
    require(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i >= 3) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return times[times.size() / 2];
}

// GB/s: the bytes that the kernel must read and write, by the median time.
inline void report(const char* name, double bytes, double ms, double copy_gb_per_s) {
  const double gb_per_s = bytes / ms * 1e-6;
  if (copy_gb_per_s == 0) copy_gb_per_s = gb_per_s;
  std::printf("%-24s %8.3f ms %8.0f GB/s  %5.1f %% of copy\n", name, ms, gb_per_s, 100 * gb_per_s / copy_gb_per_s);
}

// block_codes_test.cu
void test_block_codes();
void bench_block_codes(double copy_gb_per_s);

// fp8_cast_test.cu
void test_fp8_cast();
void bench_fp8_cast(double copy_gb_per_s);

// peer_all_reduce_test.cu
void test_peer_all_reduce();

// layer_kernels_test.cu
void test_layer_kernels();
void bench_layer_kernels(double copy_gb_per_s);

}  // namespace dslaunch::kernels
