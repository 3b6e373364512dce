// Quantizing against its definition on the host, bit by bit (block_codes.h).
#include "kernels/block_codes.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernel_checks.cuh"

namespace dslaunch::kernels {
namespace {

struct Format {
  int bits, block;
};
constexpr Format kFormats[] = {{8, 256}, {8, 64}, {4, 256}, {4, 64}};
constexpr size_t kCounts[] = {0, 1, 7, 8, 63, 64, 65, 255, 256, 257, 1023, 4097, (1 << 20) + 5};
constexpr float kBeta = 0.8F;

// Scales and one code an element, zeros behind the end; `error` is what a feedback adds and keeps.
struct Expected {
  Expected(const std::vector<float>& values, const Format& format, std::vector<float>* error) {
    const auto block = static_cast<size_t>(format.block);
    const auto largest_code = static_cast<float>((1 << (format.bits - 1)) - 1);
    codes.assign((values.size() + block - 1) / block * block, 0);
    for (size_t begin = 0; begin < codes.size(); begin += block) {
      const size_t end = std::min(begin + block, values.size());
      float largest = 0.0F;
      bool is_nan = false;
      for (size_t i = begin; i < end; ++i) {
        const float wanted = error ? values[i] + (*error)[i] : values[i];
        is_nan |= std::isnan(wanted);
        largest = std::max(largest, std::fabs(wanted));
      }
      const float scale = (is_nan ? std::numeric_limits<float>::quiet_NaN() : largest) / largest_code;
      scales.push_back(scale);
      const float inverse = scale >= std::numeric_limits<float>::min() ? 1.0F / scale : 0.0F;
      for (size_t i = begin; i < end; ++i) {
        const float wanted = error ? values[i] + (*error)[i] : values[i];
        const float steps = std::nearbyint(wanted * inverse);
        codes[i] = std::isnan(steps) ? 1 : static_cast<int>(std::fmin(std::fmax(steps, -largest_code), largest_code));
        if (!error) continue;
        const float lost = wanted - static_cast<float>(codes[i]) * scale;
        const float kept = (*error)[i] * kBeta + lost * (1.0F - kBeta);
        (*error)[i] = std::isfinite(kept) ? kept : 0.0F;
      }
    }
  }
  std::vector<uint8_t> packed(int bits) const {
    std::vector<uint8_t> out;
    for (size_t i = 0; i < codes.size(); i += 8 / static_cast<size_t>(bits)) {
      out.push_back(static_cast<uint8_t>(bits == 8 ? codes[i] : (codes[i] + 8) | (codes[i + 1] + 8) << 4));
    }
    return out;
  }
  std::vector<float> scales;
  std::vector<int> codes;
};

std::vector<uint16_t> rounded_all(const std::vector<float>& values, ElementType type) {
  std::vector<uint16_t> out;
  for (const float value : values) out.push_back(rounded(value, type));
  return out;
}

// NaN's bits are no matter.
bool same_scales(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0 && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  }
  return a.size() == b.size();
}

// There and back in one type, `offset` elements behind a boundary; `with_error`: with feedback.
void test_round_trip(size_t count, const Format& format, ElementType type, size_t offset, bool with_error,
                     float special) {
  const std::string name = "block codes, count " + std::to_string(count) + ", bits " + std::to_string(format.bits) +
                           ", block " + std::to_string(format.block) + ", type " +
                           std::to_string(static_cast<int>(type)) + ", offset " + std::to_string(offset);
  const bool is_fp32 = type == ElementType::kFloat32;
  std::vector<float> values = uniform(count, 11, -3, 3);
  for (size_t i = 0; i < count; i += 97) values[i] *= 40.0F;
  if (count > 300) values[200] = special;
  const std::vector<uint16_t> low = rounded_all(values, is_fp32 ? ElementType::kBFloat16 : type);
  for (size_t i = 0; i < count && !is_fp32; ++i) values[i] = widened(low[i], type);
  std::vector<float> error = uniform(count, 12, -0.2F, 0.2F);
  DeviceArray<float> values32(values, offset), errors(error, 1);
  DeviceArray<uint16_t> values16(low, offset);
  const Expected expected(values, format, with_error ? &error : nullptr);
  const std::vector<uint8_t> packed = expected.packed(format.bits);
  DeviceArray<float> scales(std::vector<float>(expected.scales.size(), 1.0F), 1);
  DeviceArray<uint8_t> codes(std::vector<uint8_t>(packed.size(), 1), 4);

  QuantizeArguments q;
  q.values = is_fp32 ? static_cast<const void*>(values32.data()) : values16.data();
  q.type = type;
  q.count = count;
  q.error = with_error ? errors.data() : nullptr;
  q.error_beta = kBeta;
  q.to = {scales.data(), codes.data(), format.bits, format.block};
  finish(launch_quantize(q, nullptr), name);
  check(same_scales(scales.download(name), expected.scales), name + ": scales");
  check(same_bits(codes.download(name), packed), name + ": codes");
  check(same_bits(errors.download(name), error), name + ": error");

  std::vector<float> back(count);
  for (size_t i = 0; i < count; ++i) {
    back[i] = static_cast<float>(expected.codes[i]) * expected.scales[i / static_cast<size_t>(format.block)];
  }
  DequantizeArguments d;
  d.from = q.to;
  d.type = type;
  d.count = count;
  d.out = is_fp32 ? static_cast<void*>(values32.data()) : values16.data();
  finish(launch_dequantize(d, nullptr), name);
  if (is_fp32) {
    check(same_scales(values32.download(name), back), name + ": values");
    d.add = true;
    finish(launch_dequantize(d, nullptr), name);
    for (float& value : back) value = value + value;
    check(same_scales(values32.download(name), back), name + ": sums");
  } else {
    std::vector<float> got;
    for (const uint16_t bits : values16.download(name)) got.push_back(widened(bits, type));
    for (float& value : back) value = widened(rounded(value, type), type);
    check(same_scales(got, back), name + ": values");
  }
}

}  // namespace

void test_block_codes() {
  for (const size_t count : kCounts) {
    for (const Format& format : kFormats) {
      for (const auto type : {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
        for (const size_t offset : {size_t{0}, size_t{1}, size_t{3}}) {
          for (const bool with_error : {false, true}) test_round_trip(count, format, type, offset, with_error, 0.5F);
        }
      }
      for (const float special : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::quiet_NaN(), 1e-44F}) {
        test_round_trip(count, format, ElementType::kFloat32, 0, true, special);
      }
    }
  }
}

void bench_block_codes(double copy_gb_per_s) {
  const size_t n = size_t{1} << 28;
  const auto count = static_cast<double>(n);
  uint16_t* values = nullptr;
  float *scales = nullptr, *error = nullptr;
  uint8_t* codes = nullptr;
  require(cudaMalloc(&values, n * sizeof(uint16_t)), "cudaMalloc");
  require(cudaMalloc(&error, n * sizeof(float)), "cudaMalloc");
  require(cudaMalloc(&scales, n / 64 * sizeof(float)), "cudaMalloc");
  require(cudaMalloc(&codes, n), "cudaMalloc");
  require(cudaMemset(values, 0, n * sizeof(uint16_t)), "cudaMemset");
  require(cudaMemset(error, 0, n * sizeof(float)), "cudaMemset");
  QuantizeArguments q;
  q.values = values;
  q.type = ElementType::kBFloat16;
  q.count = n;
  q.to = {scales, codes, 8, 256};
  const double wire8 = 1.0 + 4.0 / 256, wire4 = 0.5 + 4.0 / 64;  // bytes an element
  report("bf16 to 8 bits", (2 + wire8) * count, median_ms([&] { return launch_quantize(q, nullptr); }), copy_gb_per_s);
  DequantizeArguments d;
  d.from = q.to;
  d.out = values;
  d.type = q.type;
  d.count = n;
  report("8 bits to bf16", (2 + wire8) * count, median_ms([&] { return launch_dequantize(d, nullptr); }),
         copy_gb_per_s);
  q.to.bits = 4;
  q.to.block = 64;
  report("bf16 to 4 bits", (2 + wire4) * count, median_ms([&] { return launch_quantize(q, nullptr); }), copy_gb_per_s);
  q.error = error;
  report("bf16 to 4 bits, fed back", (10 + wire4) * count, median_ms([&] { return launch_quantize(q, nullptr); }),
         copy_gb_per_s);
  d.from = q.to;
  d.out = error;
  d.type = ElementType::kFloat32;
  d.add = true;
  report("4 bits, added to fp32", (8 + wire4) * count, median_ms([&] { return launch_dequantize(d, nullptr); }),
         copy_gb_per_s);
  cudaFree(values);
  cudaFree(error);
  cudaFree(scales);
  cudaFree(codes);
}

}  // namespace dslaunch::kernels
