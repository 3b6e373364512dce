#include "comm/modules.hpp"

#include <dlfcn.h>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::comm {

namespace {

// LibTorch exports the symbols of its own copy of gloo; with deep binding the module finds Debian's first.
constexpr int kOwnSymbolsFirst = RTLD_DEEPBIND;

constexpr const char* kCudaAdvice =
    "This program was built with CUDA, but its CUDA module or LibTorch's CUDA libraries cannot be loaded: reinstall "
    "dslaunch and torch 2.11.0, or run with --device cpu";

// The module needs LibTorch's CUDA half with its NCCL and CUDA runtime. Loads it first and from the directory of the
// CPU half, so that the module's dependencies resolve to these libraries and not to those of another installation.
void load_torch_cuda() {
  std::string directory = directory_of_loaded_library("libtorch_cpu.so");
  if (directory.empty()) return;  // a program without LibTorch: the module finds it by its own search path
  std::string path = directory + "/libtorch_cuda.so";
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) return;
  throw UserError(ExitCode::kUnavailable, fmt::format("cannot open {}: {}. {}", path, ::dlerror(), kCudaAdvice));
}

}  // namespace

const LoadedModule& gloo_module() {
  static const LoadedModule module("libdslaunch_gloo.so",
                                   "Ranks on CPUs need it and Gloo: install Debian's package libgloo0, or set "
                                   "DSLAUNCH_MODULE_DIR to the directory of dslaunch's modules",
                                   kOwnSymbolsFirst);
  return module;
}

const LoadedModule& cuda_module() {
  static const LoadedModule module = [] {
    load_torch_cuda();
    return LoadedModule("libdslaunch_cuda.so", kCudaAdvice);
  }();
  return module;
}

}  // namespace dslaunch::comm
