#include "runtime/state/safetensors_dtype.hpp"

#include "runtime/state/dtype_names.hpp"

namespace dslaunch::runtime {
namespace {

constexpr DtypeName kDtypes[] = {
    {"F64", at::kDouble},
    {"F32", at::kFloat},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"I64", at::kLong},
    {"I32", at::kInt},
    {"I16", at::kShort},
    {"I8", at::kChar},
    {"U64", at::kUInt64},
    {"U32", at::kUInt32},
    {"U16", at::kUInt16},
    {"U8", at::kByte},
    {"BOOL", at::kBool},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"C64", at::kComplexFloat},
};

}  // namespace

std::string safetensors_dtype_name(at::ScalarType dtype) {
  const char* name = name_of(kDtypes, dtype);
  return name ? name : "";
}

std::optional<at::ScalarType> safetensors_dtype(const std::string& name) {
  return dtype_named(kDtypes, name);
}

}  // namespace dslaunch::runtime
