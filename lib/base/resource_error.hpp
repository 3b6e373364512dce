// Errors of the machine below a computation, known by their words: LibTorch has one type for all that CUDA answers, and
// in a TorchScript graph even that is lost. Any thread.
#pragma once
#include <string>

namespace dslaunch {

// `cause`: the line that says what came back; `during`: what was tried ("forward on Long[4, 16]"). Throws UserError 69
// when memory was refused (the device's or the host's), Error 69 when the GPU itself failed or cannot run the kernels,
// UserError 65 when a kernel met an index that is out of range. Returns when the text says nothing of the kind.
void throw_if_resource_failed(const std::string& cause, const std::string& during);

}  // namespace dslaunch
