#include "runtime/offload/file_memory.hpp"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <memory>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/unique_fd.hpp"
#include "file_io/striped_file.hpp"

namespace dslaunch::runtime::offload {
namespace {

[[noreturn]] void fail(const char* what, int64_t bytes, const std::string& directory, int error) {
  const bool is_full = error == ENOSPC || error == EDQUOT;  // which may pass
  const SystemError failed(fmt::format("{} {} bytes for offloaded parameters in", what, bytes), "'" + directory + "'",
                           error, is_full ? ExitCode::kIoError : ExitCode::kCannotCreate);
  throw Error(failed.code(),
              fmt::format("{}. Another directory: --set zero_optimization.offload_param.nvme_path=DIR, or "
                          "--nvme_path DIR",
                          failed.what()));
}

}  // namespace

at::Tensor map_file_memory(int64_t numel, at::ScalarType dtype, const std::string& directory) {
  if (numel == 0) return at::empty({0}, dtype);
  const int64_t bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  const UniqueFd file = file_io::open_unnamed(directory);
  if (!file.valid()) fail("create a file of", bytes, directory, errno);
  if (const int error = ::posix_fallocate(file.get(), 0, bytes); error != 0) fail("reserve", bytes, directory, error);
  const auto length = static_cast<size_t>(bytes);
  void* address = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) fail("map", bytes, directory, errno);
  return at::from_blob(
      address, {numel}, [length](void* mapped) { ::munmap(mapped, length); }, dtype);
}

}  // namespace dslaunch::runtime::offload
