#include "runtime/generated_kernels/compiler.hpp"

#include <dlfcn.h>

#include <array>
#include <vector>

#include "base/format.hpp"
#include "base/loaded_module.hpp"
#include "base/scope_exit.hpp"

namespace dslaunch::runtime::generated_kernels {

// As nvrtc.h declares them; the header is not there in builds without CUDA. A status of 0 is success.
struct Compiler::Functions {
  using Program = void*;
  int (*version)(int* major, int* minor);
  int (*create)(Program*, const char* source, const char* name, int num_headers, const char* const* headers,
                const char* const* include_names);
  int (*destroy)(Program*);
  int (*compile)(Program, int num_options, const char* const* options);
  int (*cubin_size)(Program, size_t*);
  int (*cubin)(Program, char*);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
};

namespace {

constexpr std::array kLibraries{"libnvrtc.so.13", "libnvrtc.so.12"};

std::vector<std::string> candidates() {
  std::vector<std::string> out;
  const std::string runtime_13 = directory_of_loaded_library("libcudart.so.13"),
                    runtime_12 = directory_of_loaded_library("libcudart.so.12"),
                    torch = directory_of_loaded_library("libtorch_cpu.so");
  if (!runtime_13.empty()) out.push_back(runtime_13 + "/libnvrtc.so.13");
  if (!runtime_12.empty()) out.push_back(runtime_12 + "/../../cuda_nvrtc/lib/libnvrtc.so.12");
  if (!torch.empty()) {  // site-packages/torch/lib, beside site-packages/nvidia
    out.push_back(torch + "/../../nvidia/cu13/lib/libnvrtc.so.13");
    out.push_back(torch + "/../../nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  }
  for (const char* name : kLibraries) {
    out.emplace_back(name);
    out.push_back(std::string("/usr/local/cuda/lib64/") + name);
  }
  return out;
}

template <class Function>
bool resolve(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<const Compiler*> Compiler::open() {
  void* library = nullptr;
  const auto paths = candidates();
  for (size_t i = 0; library == nullptr && i < paths.size(); ++i) {
    library = ::dlopen(paths[i].c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    return Failure{fmt::format("NVRTC, which comes with PyTorch's wheels and the CUDA toolkit, cannot be opened ({})",
                               fmt::join(paths, ", "))};
  }
  static Functions functions;
  const bool has_all = resolve(library, "nvrtcVersion", functions.version) &&
                       resolve(library, "nvrtcCreateProgram", functions.create) &&
                       resolve(library, "nvrtcDestroyProgram", functions.destroy) &&
                       resolve(library, "nvrtcCompileProgram", functions.compile) &&
                       resolve(library, "nvrtcGetCUBINSize", functions.cubin_size) &&
                       resolve(library, "nvrtcGetCUBIN", functions.cubin) &&
                       resolve(library, "nvrtcGetProgramLogSize", functions.log_size) &&
                       resolve(library, "nvrtcGetProgramLog", functions.log);
  if (!has_all) return Failure{"NVRTC lacks a function that compiles to machine code: it is older than CUDA 11.1"};
  static const Compiler compiler(&functions);
  return &compiler;
}

Result<const Compiler*> Compiler::find() {
  static const Result<const Compiler*> found = open();
  return found;
}

std::string Compiler::version() const {
  int major = 0, minor = 0;
  functions_->version(&major, &minor);
  return fmt::format("{}.{}", major, minor);
}

Result<std::string> Compiler::compile(const std::string& source, const std::string& architecture) const {
  Functions::Program program = nullptr;
  if (const int status = functions_->create(&program, source.c_str(), "region.cu", 0, nullptr, nullptr)) {
    return Failure{fmt::format("NVRTC status {} for the source", status)};
  }
  const ScopeExit destroy([&] { functions_->destroy(&program); });
  const std::string target = "--gpu-architecture=" + architecture;
  const std::array options{target.c_str(), "--std=c++17"};
  const int status = functions_->compile(program, static_cast<int>(options.size()), options.data());
  if (status != 0) {
    size_t size = 0;
    functions_->log_size(program, &size);
    std::string log(size, '\0');
    if (size > 0) functions_->log(program, log.data());
    while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
    return Failure{fmt::format("NVRTC status {}: {}", status, log)};
  }
  size_t size = 0;
  if (functions_->cubin_size(program, &size) != 0 || size == 0) return Failure{"NVRTC made no machine code"};
  std::string cubin(size, '\0');
  if (functions_->cubin(program, cubin.data()) != 0) return Failure{"NVRTC does not hand out its machine code"};
  return cubin;
}

}  // namespace dslaunch::runtime::generated_kernels
