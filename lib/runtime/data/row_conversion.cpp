// Separate loops instead of Tensor::to: worker threads must not each start a pool of OpenMP threads.
#include "runtime/data/row_conversion.hpp"

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {
namespace {

template <class From, class To>
void convert(const void* from, void* to, int64_t count) {
  const auto* in = static_cast<const From*>(from);
  auto* out = static_cast<To*>(to);
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<To>(in[i]);
}

// Converts to a compute type.
template <class From>
void convert_floating(const void* from, void* to, at::ScalarType to_dtype, int64_t count) {
  switch (to_dtype) {
    case at::kFloat:
      return convert<From, float>(from, to, count);
    case at::kDouble:
      return convert<From, double>(from, to, count);
    case at::kHalf:
      return convert<From, at::Half>(from, to, count);
    case at::kBFloat16:
      return convert<From, at::BFloat16>(from, to, count);
    default:
      DSL_CHECK(false, fmt::format("no computation uses {}", c10::toString(to_dtype)));
  }
}

}  // namespace

at::ScalarType batch_dtype(at::ScalarType dtype, at::ScalarType float_dtype, bool is_index) {
  if (c10::isFloatingType(dtype)) return float_dtype;
  if (is_index && c10::isIntegralType(dtype, /*includeBool=*/false)) return at::kLong;
  if (dtype == at::kUInt16 || dtype == at::kUInt32 || dtype == at::kUInt64) return at::kLong;
  return dtype;
}

void convert_row(const void* from, at::ScalarType from_dtype, void* to, at::ScalarType to_dtype, int64_t count) {
  switch (from_dtype) {
    case at::kFloat:
      return convert_floating<float>(from, to, to_dtype, count);
    case at::kDouble:
      return convert_floating<double>(from, to, to_dtype, count);
    case at::kHalf:
      return convert_floating<at::Half>(from, to, to_dtype, count);
    case at::kBFloat16:
      return convert_floating<at::BFloat16>(from, to, to_dtype, count);
    case at::kFloat8_e4m3fn:
      return convert_floating<c10::Float8_e4m3fn>(from, to, to_dtype, count);
    case at::kFloat8_e5m2:
      return convert_floating<c10::Float8_e5m2>(from, to, to_dtype, count);
    case at::kInt:
      return convert<int32_t, int64_t>(from, to, count);
    case at::kShort:
      return convert<int16_t, int64_t>(from, to, count);
    case at::kChar:
      return convert<int8_t, int64_t>(from, to, count);
    case at::kByte:
      return convert<uint8_t, int64_t>(from, to, count);
    case at::kUInt16:
      return convert<uint16_t, int64_t>(from, to, count);
    case at::kUInt32:
      return convert<uint32_t, int64_t>(from, to, count);
    case at::kUInt64:
      return convert<uint64_t, int64_t>(from, to, count);
    default:
      DSL_CHECK(false, fmt::format("no data file has {}", c10::toString(from_dtype)));
  }
}

}  // namespace dslaunch::runtime
