#include "runtime/offload/host_memory.hpp"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "base/byte_size.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "comm/modules.hpp"

namespace dslaunch::runtime::offload {
namespace {

[[noreturn]] void refuse(const char* what, int64_t bytes, const std::string& reason) {
  throw UserError(ExitCode::kUnavailable,
                  fmt::format("cannot {} {} of host memory for offloaded state: {}. Offload less (zero_optimization."
                              "offload_optimizer.ratio), shard over more ranks, or raise the limit",
                              what, format_bytes(bytes), reason));
}

// A mapping, with what has to be undone before it goes.
class Mapping {
 public:
  explicit Mapping(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    address_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address_ == MAP_FAILED) refuse("map", bytes, std::strerror(errno));
    ::madvise(address_, bytes_, MADV_HUGEPAGE);  // a refusal costs speed only
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (unlock_ != nullptr) unlock_(address_);
    ::munmap(address_, bytes_);
  }

  void* address() const { return address_; }

  // Pages are taken by the kernel at once, faster than by the driver one after another.
  void page_lock(int device) {
    using Lock = const char* (*)(void* address, size_t bytes, int device);
    ::madvise(address_, bytes_, MADV_POPULATE_WRITE);
    const auto lock = comm::cuda_module().function<Lock>("dslaunch_page_lock");
    if (const char* reason = lock(address_, bytes_, device)) {
      refuse("page-lock", static_cast<int64_t>(bytes_), reason);
    }
    unlock_ = comm::cuda_module().function<void (*)(void*)>("dslaunch_page_unlock");
  }

 private:
  size_t bytes_;
  void* address_ = nullptr;
  void (*unlock_)(void*) = nullptr;
};

at::Tensor tensor_on(std::shared_ptr<Mapping> mapping, int64_t numel, at::ScalarType dtype) {
  void* address = mapping->address();
  return at::from_blob(
      address, {numel}, [held = std::move(mapping)](void*) {}, dtype);
}

std::shared_ptr<Mapping> map(int64_t numel, at::ScalarType dtype) {
  return std::make_shared<Mapping>(numel * static_cast<int64_t>(c10::elementSize(dtype)));
}

}  // namespace

at::Tensor map_host_memory(int64_t numel, at::ScalarType dtype) {
  if (numel == 0) return at::empty({0}, dtype);
  return tensor_on(map(numel, dtype), numel, dtype);
}

at::Tensor map_page_locked_memory(int64_t numel, at::ScalarType dtype, at::Device device) {
  if (numel == 0 || device.is_cpu()) return map_host_memory(numel, dtype);
  auto mapping = map(numel, dtype);
  mapping->page_lock(device.index());
  return tensor_on(std::move(mapping), numel, dtype);
}

at::Tensor page_locked_if_possible(int64_t numel, at::ScalarType dtype, at::Device device) {
  try {
    return map_page_locked_memory(numel, dtype, device);
  } catch (const UserError& error) {
    static std::once_flag once;
    std::call_once(once, [&] {
      log::warning("{}. Copies between host and device use ordinary memory, which is correct but slower", error.what());
    });
  }
  return map_host_memory(numel, dtype);
}

void require_host_memory(const HostMemoryNeed& need, int64_t available_bytes) {
  const int64_t needed = need.bytes_of_rank * need.ranks_of_host;
  if (needed <= available_bytes) return;
  throw UserError(
      ExitCode::kUnavailable,
      fmt::format(
          "offloaded state needs {} of host memory ({} for each of {} rank{} of this host), but only {} are "
          "available. Offload less (zero_optimization.offload_optimizer.ratio), shard over more hosts, use "
          "device \"nvme\" (there sub_group_size and buffer_count decide), or raise the memory limit of the job",
          format_bytes(needed), format_bytes(need.bytes_of_rank), need.ranks_of_host,
          need.ranks_of_host == 1 ? "" : "s", format_bytes(available_bytes)));
}

}  // namespace dslaunch::runtime::offload
