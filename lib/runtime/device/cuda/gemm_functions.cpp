// GEMMs by cuBLASLt. Part of the CUDA module. Row-major matrices are the transposed ones of cuBLASLt, which is
// column-major: out^T = right^T * left^T.
#include "runtime/device/gemm_functions.hpp"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAGuard.h>
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstring>

#include "base/format.hpp"
#include "runtime/device/cuda/function_tables.hpp"
#include "runtime/device/cuda/launch.hpp"

namespace dslaunch::runtime::device {
namespace {

constexpr int kMaxAlgorithms = 8;
constexpr uint64_t kMaxWorkspaceBytes = 32 << 20;
constexpr uint32_t kAlignment = 16;  // of every address, in bytes

static_assert(sizeof(Algorithm::words) == sizeof(cublasLtMatmulAlgo_t));

void check(cublasStatus_t status, const char* what) {
  DSL_CHECK(status == CUBLAS_STATUS_SUCCESS, fmt::format("{} failed: {}", what, cublasLtGetStatusString(status)));
}

cudaDataType_t data_type(const at::Tensor& matrix) {
  switch (matrix.scalar_type()) {
    case at::kBFloat16:
      return CUDA_R_16BF;
    case at::kHalf:
      return CUDA_R_16F;
    case at::kFloat8_e4m3fn:
      return CUDA_R_8F_E4M3;
    case at::kFloat8_e5m2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_32F;
  }
}

cublasLtMatrixLayoutOpaque_t layout_of(const at::Tensor& matrix) {
  const bool is_column_major = matrix.stride(1) != 1;
  const auto across = static_cast<uint64_t>(matrix.size(is_column_major ? 0 : 1));
  const auto along = static_cast<uint64_t>(matrix.size(is_column_major ? 1 : 0));
  cublasLtMatrixLayoutOpaque_t layout;
  check(cublasLtMatrixLayoutInit(&layout, data_type(matrix), across, along, matrix.stride(is_column_major ? 1 : 0)),
        "cublasLtMatrixLayoutInit");
  return layout;
}

// The descriptors of one GEMM.
struct Descriptors {
  cublasLtMatmulDescOpaque_t gemm;
  cublasLtMatrixLayoutOpaque_t first, second, out;

  Descriptors(const GemmProblem& of, const at::Tensor& out_matrix)
      : first(layout_of(of.right)), second(layout_of(of.left)), out(layout_of(out_matrix)) {
    check(cublasLtMatmulDescInit(&gemm, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit");
    set(CUBLASLT_MATMUL_DESC_TRANSA, operation(of.right));
    set(CUBLASLT_MATMUL_DESC_TRANSB, operation(of.left));
    if (of.fp8) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, of.fp8->right.const_data_ptr());
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, of.fp8->left.const_data_ptr());
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(of.fp8->fast));
    }
    if (!of.bias) return;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, of.bias->const_data_ptr());
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(*of.bias));
  }

 private:
  static cublasOperation_t operation(const at::Tensor& matrix) {
    return matrix.stride(1) == 1 ? CUBLAS_OP_N : CUBLAS_OP_T;
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulDescSetAttribute(&gemm, attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
  }
};

// Split-K sums are added in fp32, in a fixed order.
cublasLtMatmulPreferenceOpaque_t preference() {
  cublasLtMatmulPreferenceOpaque_t out;
  check(cublasLtMatmulPreferenceInit(&out), "cublasLtMatmulPreferenceInit");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(&out, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspaceBytes);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kAlignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kAlignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kAlignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kAlignment);
  return out;
}

std::vector<Algorithm> algorithms(const GemmProblem& gemm, const at::Tensor& out) {
  const c10::cuda::CUDAGuard guard(out.device());
  Descriptors descriptors(gemm, out);
  auto wanted = preference();
  cublasLtMatmulHeuristicResult_t found[kMaxAlgorithms];
  int count = 0;
  const auto status = cublasLtMatmulAlgoGetHeuristic(at::cuda::getCurrentCUDABlasLtHandle(), &descriptors.gemm,
                                                     &descriptors.first, &descriptors.second, &descriptors.out,
                                                     &descriptors.out, &wanted, kMaxAlgorithms, found, &count);
  if (status != CUBLAS_STATUS_SUCCESS) return {};
  std::vector<Algorithm> result;
  for (int i = 0; i < count; ++i) {
    if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
    Algorithm& each = result.emplace_back();
    std::memcpy(each.words.data(), &found[i].algo, sizeof(each.words));
    each.workspace_bytes = static_cast<int64_t>(found[i].workspaceSize);
  }
  return result;
}

bool run(const GemmProblem& gemm, const at::Tensor& out, bool adds, const Algorithm& algorithm) {
  const c10::cuda::CUDAGuard guard(out.device());
  Descriptors descriptors(gemm, out);
  cublasLtMatmulAlgo_t chosen;
  std::memcpy(&chosen, algorithm.words.data(), sizeof(chosen));
  const auto bytes = at::TensorOptions().device(out.device()).dtype(at::kByte);
  const at::Tensor workspace =
      algorithm.workspace_bytes > 0 ? at::empty({algorithm.workspace_bytes}, bytes) : at::Tensor();
  const float one = 1, of_out = adds ? 1 : 0;
  void* const to = out.mutable_data_ptr();
  return cublasLtMatmul(at::cuda::getCurrentCUDABlasLtHandle(), &descriptors.gemm, &one, gemm.right.const_data_ptr(),
                        &descriptors.first, gemm.left.const_data_ptr(), &descriptors.second, &of_out, to,
                        &descriptors.out, to, &descriptors.out, &chosen,
                        workspace.defined() ? workspace.mutable_data_ptr() : nullptr,
                        static_cast<size_t>(algorithm.workspace_bytes), stream_of(out)) == CUBLAS_STATUS_SUCCESS;
}

class Event {
 public:
  Event() { comm::check_cuda(cudaEventCreate(&event_), "create an event"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(event_); }
  void record(cudaStream_t stream) { comm::check_cuda(cudaEventRecord(event_, stream), "record an event"); }
  void wait() { comm::check_cuda(cudaEventSynchronize(event_), "wait for products"); }
  double microseconds_after(const Event& earlier) const {
    float milliseconds = 0;
    comm::check_cuda(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "read the time of a product");
    return 1000.0 * milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

std::vector<double> microseconds(std::span<const std::function<void()>> turns, at::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();
  std::vector<Event> events(turns.size() + 1);
  events[0].record(stream);
  for (size_t i = 0; i < turns.size(); ++i) {
    turns[i]();
    events[i + 1].record(stream);
  }
  events.back().wait();
  std::vector<double> out;
  for (size_t i = 0; i < turns.size(); ++i) out.push_back(events[i + 1].microseconds_after(events[i]));
  return out;
}

std::string description(at::Device device) {
  cudaDeviceProp properties{};
  comm::check_cuda(cudaGetDeviceProperties(&properties, device.index()), "ask a device for its properties");
  return fmt::format("{}, cuBLASLt {}", properties.name, cublasLtGetVersion());
}

}  // namespace

const GemmFunctions kGemmFunctions{
    .algorithms = algorithms, .run = run, .microseconds = microseconds, .description = description};

}  // namespace dslaunch::runtime::device
