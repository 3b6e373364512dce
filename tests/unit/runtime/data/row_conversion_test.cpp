#include "runtime/data/row_conversion.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "runtime/data/array_limit.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

at::Tensor converted(const at::Tensor& from, at::ScalarType to) {
  at::Tensor out = at::empty(from.sizes(), to);
  convert_row(from.const_data_ptr(), from.scalar_type(), out.mutable_data_ptr(), to, from.numel());
  return out;
}

constexpr at::ScalarType kIntegers[] = {at::kLong, at::kInt, at::kShort, at::kChar};

}  // namespace

TEST_CASE("floating-point rows become any compute type", "[runtime][data][row_conversion]") {
  const at::Tensor values = at::tensor({-2.0, -0.5, 0.0, 1.5, 3.0}, at::kDouble);  // exact in all types
  for (const auto from : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    for (const auto to : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      INFO(c10::toString(from) << " to " << c10::toString(to));
      CHECK(batch_dtype(from, to) == to);
      CHECK(converted(values.to(from), to).equal(values.to(to)));
    }
  }
}

TEST_CASE("indices of any integer type become int64", "[runtime][data][row_conversion]") {
  for (const auto from : {at::kByte, at::kChar, at::kShort, at::kInt}) {
    const at::Tensor ids = at::tensor({0, 7, 120}, at::kLong), as_in_file = ids.to(from);
    CHECK(batch_dtype(from, at::kHalf, /*is_index=*/true) == at::kLong);
    CHECK(converted(as_in_file, at::kLong).equal(ids));
  }
  CHECK(converted(at::tensor({-100, 5}, at::kInt), at::kLong).equal(at::tensor({-100, 5}, at::kLong)));
  CHECK(batch_dtype(at::kBool, at::kHalf, /*is_index=*/true) == at::kBool);
  CHECK(batch_dtype(at::kFloat, at::kHalf, /*is_index=*/true) == at::kHalf);
}

TEST_CASE("unsigned rows become int64, other integers stay", "[runtime][data][row_conversion]") {
  const at::Tensor ids = at::tensor({0, 7, 65535}, at::kLong);
  for (const auto from : {at::kUInt16, at::kUInt32, at::kUInt64}) {
    CHECK(batch_dtype(from, at::kFloat) == at::kLong);
    CHECK(converted(ids.to(from), at::kLong).equal(ids));
  }
  for (const auto from : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kBool}) {
    CHECK(batch_dtype(from, at::kHalf) == from);
  }
  const float value = 1;
  int64_t out = 0;
  CHECK_THROWS_AS(convert_row(&value, at::kFloat, &out, at::kLong, 1), InternalError);
  CHECK_THROWS_AS(convert_row(&value, at::kBool, &out, at::kLong, 1), InternalError);
}

TEST_CASE("an integer of any type outside its limit is found", "[runtime][data][array_limit]") {
  const at::Tensor batch = at::tensor({0, 3, 4, -100, 1, 2}, at::kLong).view({2, 3});
  for (const auto dtype : kIntegers) {
    INFO(c10::toString(dtype));
    CHECK(first_outside(batch.to(dtype), {5, -100, {}}) == std::nullopt);
    CHECK(first_outside(batch.to(dtype), {5, {}, {}}) == 3);
    CHECK(first_outside(batch.to(dtype), {4, -100, {}}) == 2);
    CHECK(first_outside(batch.to(dtype), {4, -100, {1, 0, 2}}) == std::nullopt);  // columns 0 and 1
    CHECK(first_outside(batch.to(dtype), {3, -100, {1, -2}}) == 1);               // the last two
  }
  CHECK(first_outside(at::tensor({0, 200}, at::kByte), {200, {}, {}}) == 1);
  CHECK(first_outside(at::tensor({0.0, 200.0}), {1, {}, {}}) == std::nullopt);
}
