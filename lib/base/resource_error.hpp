// Recognises hardware and resource errors by their text: LibTorch has one type for all CUDA errors, and a TorchScript
// graph loses even that type. Any thread.
#pragma once
#include <string>

namespace dslaunch {

// `cause`: the line with the error text; `during`: what was tried ("forward on Long[4, 16]"). Throws UserError 69 when
// an allocation failed (on the device or the host), Error 69 when the GPU itself failed or cannot run the kernels,
// UserError 65 when a kernel met an index that is out of range. Returns when the text matches none of these.
void throw_if_resource_failed(const std::string& cause, const std::string& during);

}  // namespace dslaunch
