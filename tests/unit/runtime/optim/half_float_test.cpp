#include "base/half_float.hpp"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>

namespace {

using dslaunch::bfloat16_bits;
using dslaunch::bfloat16_value;
using dslaunch::float16_bits;
using dslaunch::float16_value;

// Where `bits_of` is not LibTorch's own rounding to Type: all exponents and signs, with mantissas around every rounding
// boundary and a sweep in between.
template <class Type>
int64_t num_wrong(uint16_t (*bits_of)(float)) {
  int64_t wrong = 0;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t low : {0x0000U, 0x0001U, 0x0FFFU, 0x1000U, 0x1001U, 0x2FFFU, 0x3000U, 0x7FFFU, 0x8000U, 0x8001U,
                               0xEFFFU, 0xF000U, 0xFFFFU}) {
      const auto value = std::bit_cast<float>(high << 16 | low);
      const bool is_right = std::isnan(value) ? std::isnan(static_cast<float>(Type(bits_of(value), Type::from_bits())))
                                              : bits_of(value) == Type(value).x;
      wrong += is_right ? 0 : 1;
    }
  }
  return wrong;
}

// Of all bit patterns.
template <class Type>
int64_t num_wrong(float (*value_of)(uint16_t)) {
  int64_t wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = value_of(half), expected = Type(half, Type::from_bits());
    const bool is_right =
        std::isnan(expected) ? std::isnan(value) : std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(expected);
    wrong += is_right ? 0 : 1;
  }
  return wrong;
}

}  // namespace

TEST_CASE("bf16 rounds as LibTorch's type does", "[runtime][low_precision]") {
  CHECK(num_wrong<c10::BFloat16>(bfloat16_bits) == 0);
}

TEST_CASE("bf16 and fp16 widen as LibTorch's types do", "[runtime][low_precision]") {
  CHECK(num_wrong<c10::BFloat16>(bfloat16_value) == 0);
  CHECK(num_wrong<c10::Half>(float16_value) == 0);
}

TEST_CASE("fp16 rounds as LibTorch's type does, subnormals and overflow included", "[runtime][low_precision]") {
  CHECK(num_wrong<c10::Half>(float16_bits) == 0);
}
