#include "comm/gloo/rank_ordered_sum.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "support/processor_half.hpp"

using namespace dslaunch::comm;
namespace test = dslaunch::test;

namespace {

template <class T>
std::vector<T> reduce(const std::vector<std::vector<T>>& inputs, DType dtype, ReduceOp op) {
  std::vector<const void*> pointers;
  for (const auto& each : inputs) pointers.push_back(each.data());
  std::vector<T> out(inputs[0].size());
  reduce_in_order(pointers.data(), pointers.size(), out.data(), out.size(), dtype, op);
  return out;
}

uint16_t bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace

TEST_CASE("float32 is summed in the order of the inputs", "[comm][rank_ordered_sum]") {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> inputs(5, std::vector<float>(5003));
  for (auto& input : inputs)
    for (auto& value : input) value = normal(random) * 1000;
  auto got = reduce(inputs, DType::kFloat32, ReduceOp::kSum);
  for (size_t i = 0; i < got.size(); ++i) {
    volatile float expected = inputs[0][i];
    for (size_t rank = 1; rank < inputs.size(); ++rank) expected = expected + inputs[rank][i];
    REQUIRE(got[i] == expected);
  }
}

TEST_CASE("bfloat16 is summed in float32 and rounded once", "[comm][rank_ordered_sum]") {
  std::vector<std::vector<uint16_t>> inputs{{bf16(256)}, {bf16(1)}, {bf16(1)}};
  // Step by step in bfloat16 both ones would be lost.
  CHECK(reduce(inputs, DType::kBFloat16, ReduceOp::kSum)[0] == bf16(258));
}

TEST_CASE("bfloat16 is rounded to nearest even and keeps NaN and infinity", "[comm][rank_ordered_sum]") {
  auto sum = [](uint16_t a, uint16_t b) { return reduce<uint16_t>({{a}, {b}}, DType::kBFloat16, ReduceOp::kSum)[0]; };
  CHECK(sum(bf16(256), bf16(1)) == bf16(256));  // half way, to the even neighbour
  CHECK(sum(bf16(258), bf16(1)) == bf16(260));
  CHECK(sum(0x7f80, bf16(1)) == 0x7f80);
  CHECK(sum(0x7f7f, 0x7f7f) == 0x7f80);
  CHECK((sum(0x7f80, 0xff80) & 0x7fff) > 0x7f80);
  CHECK((sum(0x7f81, 0) & 0x7fff) > 0x7f80);
}

TEST_CASE("every float16 comes through unchanged, and sums are those of the compiler's half type",
          "[comm][rank_ordered_sum]") {
  std::vector<uint16_t> all(65536), zero(65536, 0);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  // Two lengths: the vector path and, for what is left over, the scalar one; then the scalar one alone.
  for (size_t length : {size_t{65536}, size_t{7}}) {
    for (size_t begin = 0; begin + length <= all.size(); begin += length) {
      std::vector<uint16_t> part(all.begin() + static_cast<ptrdiff_t>(begin),
                                 all.begin() + static_cast<ptrdiff_t>(begin + length));
      auto same = reduce<uint16_t>({part}, DType::kFloat16, ReduceOp::kSum);
      for (size_t i = 0; i < length; ++i) {
        bool is_nan = (part[i] & 0x7fff) > 0x7c00;
        REQUIRE((is_nan ? (same[i] & 0x7fff) > 0x7c00 : same[i] == part[i]));
      }
    }
  }
  std::mt19937 random(3);
  std::vector<uint16_t> a(4099), b(4099);
  for (auto* side : {&a, &b})
    for (auto& bits : *side) bits = static_cast<uint16_t>(random());
  for (size_t length : {size_t{4099}, size_t{5}}) {
    std::vector<uint16_t> left(a.begin(), a.begin() + static_cast<ptrdiff_t>(length));
    std::vector<uint16_t> right(b.begin(), b.begin() + static_cast<ptrdiff_t>(length));
    auto got = reduce<uint16_t>({left, right}, DType::kFloat16, ReduceOp::kSum);
    for (size_t i = 0; i < length; ++i) {
      uint16_t bits = test::half_bits(test::half_value(left[i]) + test::half_value(right[i]));
      bool is_nan = (bits & 0x7fff) > 0x7c00;
      REQUIRE((is_nan ? (got[i] & 0x7fff) > 0x7c00 : got[i] == bits));
    }
  }
}

TEST_CASE("the maximum keeps a NaN of any rank", "[comm][rank_ordered_sum]") {
  float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(reduce<float>({{1, -2}, {3, -4}}, DType::kFloat32, ReduceOp::kMax) == std::vector<float>{3, -2});
  CHECK(std::isnan(reduce<float>({{nan}, {3}}, DType::kFloat32, ReduceOp::kMax)[0]));
  CHECK(std::isnan(reduce<float>({{3}, {nan}}, DType::kFloat32, ReduceOp::kMax)[0]));
}

TEST_CASE("integers wrap instead of misbehaving", "[comm][rank_ordered_sum]") {
  int64_t most = std::numeric_limits<int64_t>::max();
  CHECK(reduce<int64_t>({{most}, {1}}, DType::kInt64, ReduceOp::kSum)[0] == std::numeric_limits<int64_t>::min());
  CHECK(reduce<int64_t>({{-5}, {-7}}, DType::kInt64, ReduceOp::kMax)[0] == -5);
  CHECK(reduce<uint8_t>({{200}, {100}}, DType::kUInt8, ReduceOp::kSum)[0] == 44);
}

TEST_CASE("the result may replace an input", "[comm][rank_ordered_sum]") {
  std::vector<float> a(3000, 1), b(3000, 2);
  const void* inputs[] = {a.data(), b.data()};
  reduce_in_order(inputs, 2, b.data(), b.size(), DType::kFloat32, ReduceOp::kSum);
  CHECK(b == std::vector<float>(3000, 3));
}
