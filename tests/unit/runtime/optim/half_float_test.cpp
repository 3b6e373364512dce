#include "base/half_float.hpp"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>

namespace {

using dslaunch::bfloat16_bits;
using dslaunch::float16_bits;

// All exponents and signs, with mantissas around every rounding boundary and a sweep in between.
template <class Check>
void for_many_floats(Check check) {
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t low : {0x0000U, 0x0001U, 0x0FFFU, 0x1000U, 0x1001U, 0x2FFFU, 0x3000U, 0x7FFFU, 0x8000U, 0x8001U,
                               0xEFFFU, 0xF000U, 0xFFFFU}) {
      check(std::bit_cast<float>(high << 16 | low));
    }
  }
}

}  // namespace

TEST_CASE("bf16 rounds as LibTorch's type does", "[runtime][low_precision]") {
  int64_t wrong = 0;
  for_many_floats([&](float value) {
    if (std::isnan(value)) {
      wrong += std::isnan(static_cast<float>(c10::BFloat16(bfloat16_bits(value), c10::BFloat16::from_bits()))) ? 0 : 1;
    } else {
      wrong += bfloat16_bits(value) == c10::BFloat16(value).x ? 0 : 1;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("fp16 rounds as LibTorch's type does, subnormals and overflow included", "[runtime][low_precision]") {
  int64_t wrong = 0;
  for_many_floats([&](float value) {
    if (std::isnan(value)) {
      wrong += std::isnan(static_cast<float>(c10::Half(float16_bits(value), c10::Half::from_bits()))) ? 0 : 1;
    } else {
      wrong += float16_bits(value) == c10::Half(value).x ? 0 : 1;
    }
  });
  CHECK(wrong == 0);
}
