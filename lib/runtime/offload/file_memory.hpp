// Parameters that rest in files ("nvme"): mapped, so that the system reads pages when they are used and writes them
// back when it needs the memory. The files have no name, so nothing of them is left when the process ends, however it
// ends.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace dslaunch::runtime::offload {

// Zeros; 1-D, in a new file in `directory`, whose space is taken now. Throws Error with the directory, the system's
// reason and the option that sets another: 73 if it does not exist or is not writable, 74 if its file system is full.
// Any thread.
at::Tensor map_file_memory(int64_t numel, at::ScalarType dtype, const std::string& directory);

}  // namespace dslaunch::runtime::offload
