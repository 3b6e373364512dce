#include "runtime/state/safetensors_dtype.hpp"

#include <array>

namespace dslaunch::runtime {
namespace {

struct DtypeName {
  const char* name;
  at::ScalarType dtype;
};
constexpr std::array kDtypes = {
    DtypeName{"F64", at::kDouble},
    DtypeName{"F32", at::kFloat},
    DtypeName{"F16", at::kHalf},
    DtypeName{"BF16", at::kBFloat16},
    DtypeName{"I64", at::kLong},
    DtypeName{"I32", at::kInt},
    DtypeName{"I16", at::kShort},
    DtypeName{"I8", at::kChar},
    DtypeName{"U64", at::kUInt64},
    DtypeName{"U32", at::kUInt32},
    DtypeName{"U16", at::kUInt16},
    DtypeName{"U8", at::kByte},
    DtypeName{"BOOL", at::kBool},
    DtypeName{"F8_E4M3", at::kFloat8_e4m3fn},
    DtypeName{"F8_E5M2", at::kFloat8_e5m2},
    DtypeName{"C64", at::kComplexFloat},
};

}  // namespace

std::string safetensors_dtype_name(at::ScalarType dtype) {
  for (const auto& known : kDtypes) {
    if (dtype == known.dtype) return known.name;
  }
  return "";
}

std::optional<at::ScalarType> safetensors_dtype(const std::string& name) {
  for (const auto& known : kDtypes) {
    if (name == known.name) return known.dtype;
  }
  return std::nullopt;
}

}  // namespace dslaunch::runtime
