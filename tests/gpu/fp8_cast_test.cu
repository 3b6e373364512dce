// The casts to fp8 against their definition on the host, bit by bit.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernel_checks.cuh"
#include "kernels/fp8_cast.h"

namespace dslaunch::kernels {
namespace {

struct Form {
  bool is_e5m2, power_of_two, plain_by_row, transposed_by_row, has_plain, has_transposed;
};
constexpr Form kForms[] = {{false, false, false, false, true, true}, {true, false, false, false, true, true},
                           {false, true, true, true, true, true},    {false, true, true, false, true, true},
                           {true, false, false, false, true, false}, {false, true, false, true, false, true}};

// The bits of the nearest number of the type, ties to even; past the largest one: that.
uint8_t fp8_of(float value, bool is_e5m2) {
  const int mantissa = is_e5m2 ? 2 : 3, bias = is_e5m2 ? 15 : 7, lowest = 1 - bias;
  const double largest = is_e5m2 ? 57344 : 448;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return 0x7f;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= largest) return sign | (is_e5m2 ? 0x7b : 0x7e);
  const int exponent = magnitude == 0 ? lowest : std::max(std::ilogb(magnitude), lowest);
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, mantissa - exponent)));
  // A mantissa that rounds up to the next exponent carries into its bits; below the lowest exponent they are 0.
  return static_cast<uint8_t>(sign | (units + ((exponent - lowest) << mantissa)));
}

float scale_of(float largest, const Form& form) {
  const double limit = form.is_e5m2 ? 57344 : 448;
  const auto scale = static_cast<float>(limit / (largest < 1e-12 ? 1e-12 : static_cast<double>(largest)));
  if (!form.power_of_two) return scale;
  return std::isfinite(scale) ? std::ldexp(1.0F, std::ilogb(scale)) : std::numeric_limits<float>::infinity();
}

float larger(float a, float b) {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<float>::quiet_NaN() : std::max(a, b);
}

struct Expected {
  std::vector<uint8_t> values;
  std::vector<float> inverse_scales;
};

// `at(row, column)` of the matrix that is stored; the columns from `columns` to `stride` are zeros.
template <class At>
Expected expected_of(size_t rows, size_t columns, size_t stride, bool by_row, const Form& form, const At& at) {
  float whole = 0;
  std::vector<float> largest(rows, 0);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; ++column) largest[row] = larger(largest[row], std::fabs(at(row, column)));
    whole = larger(whole, largest[row]);
  }
  Expected out{std::vector<uint8_t>(rows * stride, 0), {}};
  for (size_t row = 0; row < rows; ++row) {
    const float scale = scale_of(by_row ? largest[row] : whole, form);
    if (by_row || row == 0) out.inverse_scales.push_back(1.0F / scale);
    for (size_t column = 0; column < columns; ++column) {
      out.values[row * stride + column] = fp8_of(at(row, column) * scale, form.is_e5m2);
    }
  }
  return out;
}

void check_output(const Expected& expected, DeviceArray<uint8_t>& values, DeviceArray<float>& scales,
                  const std::string& name) {
  const auto got_scales = scales.download(name);
  for (size_t i = 0; i < got_scales.size(); ++i) {
    const bool is_nan = std::isnan(got_scales[i]) && std::isnan(expected.inverse_scales[i]);
    check(is_nan || got_scales[i] == expected.inverse_scales[i], name + ": scale " + std::to_string(i));
  }
  const auto got = values.download(name);
  size_t different = 0, first = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool is_nan = (got[i] & 0x7f) == 0x7f && expected.values[i] == 0x7f;
    if (got[i] == expected.values[i] || is_nan) continue;
    if (different++ == 0) first = i;
  }
  check(different == 0, name + ": " + std::to_string(different) + " values, the first is [" + std::to_string(first) +
                            "]: " + std::to_string(got[first]) + ", expected " +
                            std::to_string(expected.values[first]));
}

void test_cast(size_t rows, size_t columns, const Form& form, float last, bool is_noted = false) {
  std::vector<uint32_t> slots(kFp8MaximumSlots * kFp8SlotStride, 0);
  const std::string name = std::string(is_noted ? "fp8 cast with a known maximum, " : "fp8 cast, ") +
                           std::to_string(rows) + " x " + std::to_string(columns) + ", form " +
                           std::to_string(&form - kForms) + ", last " + std::to_string(last);
  std::vector<float> values = uniform(rows * columns, 31, -3, 3);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= std::ldexp(1.0F, static_cast<int>(i * 7 % 23) - 12);
  values.back() = last;
  std::vector<uint16_t> bits;
  for (float& value : values) {
    bits.push_back(rounded(value, ElementType::kBFloat16));
    value = widened(bits.back(), ElementType::kBFloat16);
  }
  const size_t stride = (rows + 15) / 16 * 16;
  DeviceArray<uint16_t> matrix(bits, 0);
  DeviceArray<uint8_t> plain(std::vector<uint8_t>(rows * columns, 9), 0),
      transposed(std::vector<uint8_t>(columns * stride, 9), 0);
  DeviceArray<float> plain_scales(std::vector<float>(form.plain_by_row ? rows : 1, 9), 0),
      transposed_scales(std::vector<float>(form.transposed_by_row ? columns : 1, 9), 0);
  DeviceArray<uint32_t> maxima(std::vector<uint32_t>(num_fp8_maxima(rows, columns), 0), 0);
  Fp8CastArguments a;
  a.matrix = matrix.data();
  a.rows = rows;
  a.columns = columns;
  a.is_e5m2 = form.is_e5m2;
  a.power_of_two = form.power_of_two;
  if (form.has_plain) a.plain = {plain.data(), form.plain_by_row, plain_scales.data()};
  if (form.has_transposed) a.transposed = {transposed.data(), form.transposed_by_row, transposed_scales.data()};
  a.stride = stride;
  a.maxima = maxima.data();
  if (is_noted) {
    float largest = 0;
    for (const float value : values) largest = larger(largest, std::fabs(value));
    slots[37 * kFp8SlotStride] = rounded(largest, ElementType::kBFloat16);
    slots[5 * kFp8SlotStride] = slots[37 * kFp8SlotStride] / 2;
  }
  DeviceArray<uint32_t> noted(slots, 0);
  if (is_noted) a.noted = noted.data();
  finish(launch_fp8_cast(a, nullptr), name);
  if (form.has_plain) {
    const auto expected = expected_of(rows, columns, columns, form.plain_by_row, form,
                                      [&](size_t row, size_t column) { return values[row * columns + column]; });
    check_output(expected, plain, plain_scales, name + ", plain");
  }
  if (form.has_transposed) {
    const auto expected = expected_of(columns, rows, stride, form.transposed_by_row, form,
                                      [&](size_t row, size_t column) { return values[column * columns + row]; });
    check_output(expected, transposed, transposed_scales, name + ", transposed");
  }
}

}  // namespace

void test_fp8_cast() {
  for (const auto& form : kForms) {
    for (const size_t rows : {1, 16, 129, 300, 1100}) {
      for (const size_t columns : {16, 80, 272, 528}) test_cast(rows, columns, form, 0.5F);
    }
    test_cast(40, 32, form, std::numeric_limits<float>::quiet_NaN());
    test_cast(40, 32, form, -300.0F);
    if (form.plain_by_row || form.transposed_by_row) continue;
    test_cast(300, 272, form, 0.5F, /*is_noted=*/true);
    test_cast(40, 32, form, std::numeric_limits<float>::quiet_NaN(), /*is_noted=*/true);
  }
}

void bench_fp8_cast(double copy_gb_per_s) {
  const size_t rows = 16384, columns = 4096, count = rows * columns;
  DeviceArray<uint16_t> matrix(std::vector<uint16_t>(count, 0x3f80), 0);
  DeviceArray<uint8_t> plain(std::vector<uint8_t>(count, 0), 0), transposed(std::vector<uint8_t>(count, 0), 0);
  DeviceArray<float> scales(std::vector<float>(rows + columns, 0), 0);
  DeviceArray<uint32_t> maxima(std::vector<uint32_t>(num_fp8_maxima(rows, columns), 0), 0);
  for (const bool by_row : {false, true}) {
    Fp8CastArguments a;
    a.matrix = matrix.data();
    a.rows = rows;
    a.columns = columns;
    a.stride = rows;
    a.maxima = maxima.data();
    a.plain = {plain.data(), by_row, scales.data()};
    a.transposed = {transposed.data(), by_row, scales.data() + rows};
    report(by_row ? "fp8 cast by rows, both" : "fp8 cast, both", 6.0 * static_cast<double>(count),
           median_ms([&] { return launch_fp8_cast(a, nullptr); }), copy_gb_per_s);
  }
}

}  // namespace dslaunch::kernels
