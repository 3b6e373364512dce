#include "runtime/model/fusion/codegen.hpp"

#include <cmath>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/device/fp8_maxima.hpp"

namespace dslaunch::runtime::model::fusion {
namespace {

constexpr char kPrelude[] = R"(
typedef long long i64;
typedef unsigned short u16;
struct bf16 { u16 bits; };
struct f16 { u16 bits; };
struct flag { unsigned char bits; };
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T at[N]; };

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(flag x) { return x.bits ? 1.0f : 0.0f; }
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ __forceinline__ float widen(f16 x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits)); return r; }
__device__ __forceinline__ void narrow(float x, float& to) { to = x; }
__device__ __forceinline__ void narrow(float x, flag& to) { to.bits = x != 0.0f; }
__device__ __forceinline__ void narrow(float x, bf16& to) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
__device__ __forceinline__ void narrow(float x, f16& to) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
template <class T> __device__ __forceinline__ float rounded(float x) { T t; narrow(x, t); return widen(t); }
// A maximum or minimum of anything and NaN is NaN, as PyTorch's.
__device__ __forceinline__ float larger(float a, float b) { return a > b || a != a ? a : b; }
__device__ __forceinline__ float smaller(float a, float b) { return a < b || a != a ? a : b; }
// Over as many neighbouring threads, in all of them.
template <int COUNT> __device__ __forceinline__ float in_warp_add(float x) {
#pragma unroll
  for (int d = COUNT / 2; d > 0; d /= 2) x += __shfl_xor_sync(~0u, x, d);
  return x;
}
template <int COUNT> __device__ __forceinline__ float in_warp_larger(float x) {
#pragma unroll
  for (int d = COUNT / 2; d > 0; d /= 2) x = larger(x, __shfl_xor_sync(~0u, x, d));
  return x;
}
// 0, once what earlier kernels have written is visible; the next kernel may start from here on (overlapped_launch.h). An
// address that it is added to is read afterwards: loads by the cache for read-only memory know of no other order.
__device__ __forceinline__ i64 await_earlier_kernels() {
  i64 zero = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;\nmov.b64 %0, 0;" : "=l"(zero) :: "memory");
#endif
  return zero;
}
// By the cache for read-only memory, so that the compiler may move loads in front of stores.
template <class W, class P> __device__ __forceinline__ void load_words(const void* from, P& to) {
#pragma unroll
  for (int i = 0; i < (int)(sizeof(P) / sizeof(W)); ++i) ((W*)&to)[i] = __ldg((const W*)from + i);
}
// As one access, which the compiler does not always find for a struct.
__device__ __forceinline__ void store_word(uint4 x, void* to) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" :: "l"(__cvta_generic_to_global(to)), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w));
}
__device__ __forceinline__ void store_word(uint2 x, void* to) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" :: "l"(__cvta_generic_to_global(to)), "r"(x.x), "r"(x.y));
}
template <class W> __device__ __forceinline__ void store_word(W x, void* to) { *(W*)to = x; }
template <class W, class P> __device__ __forceinline__ void store_words(const P& from, void* to) {
#pragma unroll
  for (int i = 0; i < (int)(sizeof(P) / sizeof(W)); ++i) store_word(((const W*)&from)[i], (W*)to + i);
}
template <class P> __device__ __forceinline__ P load(const void* from) {
  P to;
  if constexpr (sizeof(P) % 16 == 0) load_words<uint4>(from, to);
  else if constexpr (sizeof(P) == 8) load_words<uint2>(from, to);
  else if constexpr (sizeof(P) == 4) load_words<unsigned>(from, to);
  else if constexpr (sizeof(P) == 2) load_words<unsigned short>(from, to);
  else load_words<unsigned char>(from, to);
  return to;
}
template <class P> __device__ __forceinline__ void store(const P& from, void* to) {
  if constexpr (sizeof(P) % 16 == 0) store_words<uint4>(from, to);
  else if constexpr (sizeof(P) == 8) store_words<uint2>(from, to);
  else if constexpr (sizeof(P) == 4) store_words<unsigned>(from, to);
  else if constexpr (sizeof(P) == 2) store_words<unsigned short>(from, to);
  else store_words<unsigned char>(from, to);
}
)";

// Of regions whose results are all bf16, where these are exact enough.
constexpr char kFastFunctions[] = R"(
__device__ __forceinline__ float sigmoid_of(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
__device__ __forceinline__ float tanh_of(float x) { float r; asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
)";
constexpr char kExactFunctions[] = R"(
__device__ __forceinline__ float sigmoid_of(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float tanh_of(float x) { return tanhf(x); }
)";

}  // namespace

std::string device_functions(bool fast) {
  return std::string(kPrelude) + (fast ? kFastFunctions : kExactFunctions);
}

std::string note_function() {
  return fmt::format(R"(
__device__ __forceinline__ void note(unsigned most, unsigned* slots) {{
  most = __reduce_max_sync(~0u, most);
  const unsigned warp = blockIdx.x * (blockDim.x / 32u) + threadIdx.x / 32u;
  if (threadIdx.x % 32u == 0u && most > 0u) atomicMax(slots + warp % {}u * {}u, most);
}}
)",
                     device::kMaximumSlots, device::kSlotStride);
}

const char* type_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "float";
    case at::kBFloat16:
      return "bf16";
    case at::kHalf:
      return "f16";
    case at::kBool:
      return "flag";
    default:
      return nullptr;
  }
}

std::string literal(double number) {
  const auto value = static_cast<float>(number);
  if (std::isnan(value)) return "__int_as_float(0x7fffffff)";
  if (std::isinf(value)) return value > 0 ? "__int_as_float(0x7f800000)" : "__int_as_float(0xff800000)";
  auto text = fmt::format("{:.9g}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return value < 0 || std::signbit(value) ? "(" + text + "f)" : text + "f";
}

std::string expression(const Instruction& node, const std::vector<std::string>& x) {
  switch (node.op) {
    case Op::kConstant:
      return literal(node.number);
    case Op::kNegate:
      return "-" + x[0];
    case Op::kAbs:
      return "fabsf(" + x[0] + ")";
    case Op::kExp:
      return "expf(" + x[0] + ")";
    case Op::kLog:
      return "logf(" + x[0] + ")";
    case Op::kSqrt:
      return "sqrtf(" + x[0] + ")";
    case Op::kRsqrt:
      return "rsqrtf(" + x[0] + ")";
    case Op::kReciprocal:
      return "1.0f / " + x[0];
    case Op::kSin:
      return "sinf(" + x[0] + ")";
    case Op::kCos:
      return "cosf(" + x[0] + ")";
    case Op::kTanh:
      return "tanh_of(" + x[0] + ")";
    case Op::kSigmoid:
      return "sigmoid_of(" + x[0] + ")";
    case Op::kErf:
      return "erff(" + x[0] + ")";
    case Op::kNot:
      return x[0] + " == 0.0f ? 1.0f : 0.0f";
    case Op::kPower:
      return "powf(" + x[0] + ", " + literal(node.number) + ")";
    case Op::kCast:
      return fmt::format("rounded<{}>({})", type_name(node.dtype), x[0]);
    case Op::kDetach:
    case Op::kBroadcast:
    case Op::kShareGradient:
      return x[0];
    case Op::kAdd:
      return x[0] + " + " + x[1];
    case Op::kSubtract:
      return x[0] + " - " + x[1];
    case Op::kMultiply:
      return x[0] + " * " + x[1];
    case Op::kDivide:
      return x[0] + " / " + x[1];
    case Op::kMaximum:
      return "larger(" + x[0] + ", " + x[1] + ")";
    case Op::kMinimum:
      return "smaller(" + x[0] + ", " + x[1] + ")";
    case Op::kLess:
      return x[0] + " < " + x[1] + " ? 1.0f : 0.0f";
    case Op::kLessEqual:
      return x[0] + " <= " + x[1] + " ? 1.0f : 0.0f";
    case Op::kEqual:
      return x[0] + " == " + x[1] + " ? 1.0f : 0.0f";
    case Op::kSelect:
      return x[0] + " != 0.0f ? " + x[1] + " : " + x[2];
    default:
      throw InternalError(__FILE__, __LINE__, "expression", "an operation without an expression");
  }
}

}  // namespace dslaunch::runtime::model::fusion
