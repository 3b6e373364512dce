// CUDA source to machine code with NVRTC, NVIDIA's run-time compiler, which comes with PyTorch's wheels and with the
// CUDA toolkit. Needs no GPU. Any thread.
#pragma once
#include <string>

#include "base/result.hpp"

namespace dslaunch::runtime::generated_kernels {

class Compiler {
 public:
  // The failure says which libraries could not be opened. Looks beside the CUDA runtime and LibTorch that this process
  // has loaded, then where the loader looks.
  static Result<const Compiler*> find();

  std::string version() const;  // "13.0"
  // `architecture`: "sm_90". Returns a cubin; the failure is the compiler's log.
  Result<std::string> compile(const std::string& source, const std::string& architecture) const;

 private:
  struct Functions;
  explicit Compiler(const Functions* functions) : functions_(functions) {}
  static Result<const Compiler*> open();

  const Functions* functions_;
};

}  // namespace dslaunch::runtime::generated_kernels
