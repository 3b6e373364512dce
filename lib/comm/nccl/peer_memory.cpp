#include "comm/nccl/peer_memory.hpp"

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <new>

#include "base/format.hpp"
#include "base/host_name.hpp"
#include "comm/collective.hpp"
#include "comm/nccl/device_errors.hpp"

namespace dslaunch::comm {
namespace {

// What a member tells the others about its memory.
struct Offer {
  uint64_t process = 0, address = 0;
  cudaIpcMemHandle_t handle = {};
};

// Containers of one machine may have the same name, and one kernel.
std::string machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return host_name() + " " + boot;
}

std::optional<kernels::ElementType> element_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return kernels::ElementType::kFloat32;
    case DType::kBFloat16:
      return kernels::ElementType::kBFloat16;
    case DType::kFloat16:
      return kernels::ElementType::kFloat16;
    default:
      return std::nullopt;
  }
}

std::string text_of(cudaError_t error) {
  ::cudaGetLastError();  // so that a later call does not report this refusal
  return ::cudaGetErrorString(error);
}

}  // namespace

PeerMemory::PeerMemory() {
  void* word = nullptr;
  check_cuda(::cudaHostAlloc(&word, sizeof *aborted_, cudaHostAllocPortable | cudaHostAllocMapped),
             "allocate page-locked memory");
  aborted_ = new (word) std::atomic<uint32_t>(0);
}

PeerMemory::~PeerMemory() {
  for (void* memory : opened_) ::cudaIpcCloseMemHandle(memory);
  if (own_) ::cudaFree(own_);
  if (event_) ::cudaEventDestroy(event_);
  ::cudaFreeHost(aborted_);
}

Result<> PeerMemory::connect(const CommunicatorOptions& options, const std::string& key_prefix,
                             rendezvous::Store& store, Deadline deadline) {
  const auto key = [&](const char* what, int rank) { return fmt::format("{}/peer_{}/{}", key_prefix, what, rank); };
  const auto size = static_cast<size_t>(options.size);
  std::string why;
  if (options.size > kernels::kMaxPeers) {
    return Failure{fmt::format("{} ranks are more than {}", options.size, kernels::kMaxPeers)};
  }
  const size_t bytes = kernels::peer_memory_bytes(options.size), counters = 256;
  if (const auto result = ::cudaMalloc(&own_, bytes + counters); result != cudaSuccess) {
    own_ = nullptr;
    why = fmt::format("{} bytes cannot be had: {}", bytes, text_of(result));
  } else {
    check_cuda(::cudaMemset(own_, 0, bytes + counters), "clear memory");
    check_cuda(::cudaDeviceSynchronize(), "clear memory");
    check_cuda(::cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "create an event");
    group_.progress = reinterpret_cast<uint32_t*>(static_cast<char*>(own_) + bytes);
  }
  store.set(key("machine", options.rank), machine(), deadline);
  store.set(key("memory", options.rank), own_ ? offer() : std::string(), deadline);
  group_.rank = options.rank;
  group_.size = options.size;
  group_.aborted = reinterpret_cast<const uint32_t*>(aborted_);
  for (size_t rank = 0; rank < size; ++rank) {
    const int member = static_cast<int>(rank);
    const std::string theirs = store.get(key("memory", member), deadline);
    if (store.get(key("machine", member), deadline) != machine()) why = "the ranks are on several machines";
    if (!why.empty() || theirs.empty()) continue;
    auto opened = member == options.rank ? Result<void*>(own_) : open(theirs);
    if (opened.ok()) {
      group_.memory[rank] = *opened;
    } else {
      why = fmt::format("the GPU of rank {} of group '{}' cannot be mapped: {}", member, options.name, opened.error());
    }
  }
  store.set(key("opened", options.rank), why, deadline);
  for (size_t rank = 0; rank < size; ++rank) {
    const std::string theirs = store.get(key("opened", static_cast<int>(rank)), deadline);
    if (why.empty()) why = theirs;
  }
  return why.empty() ? Result<>() : Failure{std::move(why)};
}

// Empty: this memory cannot be shared with other processes.
std::string PeerMemory::offer() const {
  Offer out{static_cast<uint64_t>(::getpid()), reinterpret_cast<uint64_t>(own_), {}};
  if (::cudaIpcGetMemHandle(&out.handle, own_) != cudaSuccess) {
    ::cudaGetLastError();
    out.handle = {};
  }
  return {reinterpret_cast<const char*>(&out), sizeof out};
}

Result<void*> PeerMemory::open(const std::string& offer) {
  Offer theirs;
  if (offer.size() != sizeof theirs) return Failure{"it has sent something else"};
  std::memcpy(&theirs, offer.data(), sizeof theirs);
  void* memory = nullptr;
  if (theirs.process == static_cast<uint64_t>(::getpid())) {
    memory = reinterpret_cast<void*>(theirs.address);  // NOLINT: an address of this process
    cudaPointerAttributes attributes{};
    if (const auto result = ::cudaPointerGetAttributes(&attributes, memory); result != cudaSuccess) {
      return Failure{text_of(result)};
    }
    int device = 0;
    ::cudaGetDevice(&device);
    if (attributes.device == device) return memory;
    const auto result = ::cudaDeviceEnablePeerAccess(attributes.device, 0);
    if (result != cudaSuccess && result != cudaErrorPeerAccessAlreadyEnabled) return Failure{text_of(result)};
    ::cudaGetLastError();
    return memory;
  }
  const auto result = ::cudaIpcOpenMemHandle(&memory, theirs.handle, cudaIpcMemLazyEnablePeerAccess);
  if (result != cudaSuccess) return Failure{text_of(result)};
  opened_.push_back(memory);
  return memory;
}

bool PeerMemory::takes_sum(const ConstBuffer& buffer, ReduceOp op) const {
  return op == ReduceOp::kSum && element_type(buffer.dtype) && num_bytes_in(buffer) <= kernels::kMaxTwoShotBytes;
}

bool PeerMemory::takes_gather(const ConstBuffer& own) const {
  return num_bytes_in(own) <= kernels::kMaxOneShotBytes;
}

// Launches of one communicator follow each other, in whichever streams they are.
template <class Launch>
cudaError_t PeerMemory::in_order(cudaStream_t stream, Launch launch) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long capture = 0;
  if (const auto result = ::cudaStreamGetCaptureInfo(stream, &status, &capture); result != cudaSuccess) return result;
  if (status == cudaStreamCaptureStatusNone) capture = 0;
  if (has_launched_ && stream != stream_ && capture == capture_) {
    if (const auto result = ::cudaStreamWaitEvent(stream, event_); result != cudaSuccess) return result;
  }
  if (const auto result = launch(); result != cudaSuccess) return result;
  has_launched_ = true;
  stream_ = stream;
  capture_ = capture;
  return ::cudaEventRecord(event_, stream);
}

cudaError_t PeerMemory::all_reduce(const Buffer& buffer, cudaStream_t stream) {
  return in_order(stream, [&] {
    return kernels::launch_peer_all_reduce(group_, buffer.data, buffer.data, buffer.count, *element_type(buffer.dtype),
                                           stream);
  });
}

cudaError_t PeerMemory::all_gather(const ConstBuffer& own, const Buffer& out, cudaStream_t stream) {
  return in_order(
      stream, [&] { return kernels::launch_peer_all_gather(group_, own.data, out.data, num_bytes_in(own), stream); });
}

}  // namespace dslaunch::comm
