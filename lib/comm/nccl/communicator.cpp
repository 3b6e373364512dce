#include "comm/nccl/communicator.hpp"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/resource_error.hpp"
#include "base/scope_exit.hpp"
#include "comm/backends.hpp"
#include "comm/collective.hpp"
#include "comm/nccl/device_errors.hpp"
#include "comm/nccl/local_error.hpp"

namespace dslaunch::comm {

namespace {

// An issuing thread that holds the handle longer than this is stuck in a kernel launch behind a kernel that never ends.
constexpr std::chrono::milliseconds kMaxCall{200};
constexpr std::chrono::milliseconds kPeerLossDelay{300};
constexpr std::chrono::milliseconds kMaxFlush{5000};
constexpr std::chrono::microseconds kPollInterval{20};
constexpr int kSpins = 2000;  // event queries before sleeping between them

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kInt64:
      return ncclInt64;
    case DType::kUInt8:
      return ncclUint8;
  }
  DSL_CHECK(false, "unknown DType");
}

ncclRedOp_t nccl_op(ReduceOp op) {
  return op == ReduceOp::kSum ? ncclSum : ncclMax;
}

ncclResult_t as_nccl(cudaError_t result) {
  return result == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

bool is_in_progress(ncclResult_t result) {
  return result == ncclInProgress;
}

// Calls `fill`, which adds calls of NCCL to one group: they run at the same time. Returns the first failure.
using AddToGroup = std::function<void(ncclResult_t outcome)>;
ncclResult_t as_group(const std::function<void(const AddToGroup& add)>& fill) {
  ncclResult_t result = ::ncclGroupStart();
  const AddToGroup add = [&](ncclResult_t outcome) {
    if (result == ncclSuccess) result = outcome;
  };
  fill(add);
  add(::ncclGroupEnd());
  return result;
}

}  // namespace

NcclCommunicator::NcclCommunicator(const CommunicatorOptions& options, rendezvous::Store& store)
    : options_(options), abort_flag_(watch_peers(store)) {
  c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(options_.device));
  try {
    check_cuda(::cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "create an event");
    check_cuda(::cudaMalloc(&barrier_token_, 1), "allocate one byte");
    check_cuda(::cudaMemset(barrier_token_, 0, 1), "clear one byte");
    check_cuda(::cudaMalloc(&greeting_, 1), "allocate one byte");
    counters_ = std::make_unique<StreamCounters>();
    collective_timeout_ = std::make_unique<CollectiveTimeout>(
        options_.timeout, [this](const std::string& message) { abort_flag_->trip(message); });
    if (options_.uses_peer_memory) peers_ = std::make_unique<PeerMemory>();
    set_up(store, Deadline::after(options_.timeout));
  } catch (...) {
    release();
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() {
  c10::cuda::OptionalCUDAGuard guard(
      c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(options_.device)));
  release();
}

// A clean shutdown flushes data that peers have not read yet; after a failure, or when the flush does not end, an abort
// frees immediately.
void NcclCommunicator::release() {
  collective_timeout_.reset();
  abort_flag_->disarm();
  if (aborting_.joinable()) aborting_.join();
  if (handle_ && are_connected_ && !abort_flag_->tripped()) wait_for_peers();
  if (handle_) {
    bool flushed = !abort_flag_->tripped() && flush();
    flushed ? ::ncclCommDestroy(handle_) : ::ncclCommAbort(handle_);
    handle_ = nullptr;
  }
  peers_.reset();
  if (barrier_token_) ::cudaFree(barrier_token_);
  if (greeting_) ::cudaFree(greeting_);
  if (event_) ::cudaEventDestroy(event_);
}

bool NcclCommunicator::flush() {
  auto deadline = Deadline::after(kMaxFlush);
  ncclResult_t result = ::ncclCommFinalize(handle_);
  while (is_in_progress(result) && !deadline.passed()) {
    std::this_thread::sleep_for(kPollInterval);
    result = asynchronous_state();
  }
  return result == ncclSuccess;
}

void NcclCommunicator::set_up(rendezvous::Store& store, Deadline deadline) {
  std::string what = fmt::format("setting up NCCL for group '{}'", options_.name);
  const std::string prefix = fresh_key_prefix(options_, store, deadline);
  const std::string key = prefix + "/nccl_id";
  ncclUniqueId id;
  if (options_.rank == 0) {
    if (auto result = ::ncclGetUniqueId(&id); result != ncclSuccess) wait_until_issued(result, what, deadline);
    store.set(key, std::string(id.internal, sizeof id.internal), deadline);
  } else {
    std::string value = store.get(key, deadline);
    DSL_CHECK(value.size() == sizeof id.internal, "the NCCL id in the store has an unexpected size");
    std::memcpy(id.internal, value.data(), value.size());
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclResult_t result = ncclSuccess;
  {
    std::lock_guard lock(handle_mutex_);
    result = ::ncclCommInitRankConfig(&handle_, options_.size, id, options_.rank, &config);
  }
  abort_flag_->set_abort_action([this] { abort_in_background(); });
  wait_until_issued(result, what, deadline);
  if (peers_) connect_peers(prefix, store, deadline);
}

void NcclCommunicator::connect_peers(const std::string& key_prefix, rendezvous::Store& store, Deadline deadline) {
  const auto connected = peers_->connect(options_, key_prefix, store, deadline);
  are_connected_ = connected.ok();
  small_sums_ = connected.ok() ? "through memory that the GPUs map" : "by NCCL: " + connected.error();
}

// No member frees memory that another still reads or writes.
void NcclCommunicator::wait_for_peers() {
  const auto deadline = Deadline::after(kMaxFlush);
  const auto result = ::ncclAllReduce(barrier_token_, barrier_token_, 1, ncclUint8, ncclMax, handle_, stream());
  if (result != ncclSuccess && !is_in_progress(result)) return;
  while (is_in_progress(asynchronous_state()) && !deadline.passed()) std::this_thread::sleep_for(kPollInterval);
  if (::cudaEventRecord(event_, stream()) != cudaSuccess) return;
  while (::cudaEventQuery(event_) == cudaErrorNotReady && !deadline.passed() && !abort_flag_->tripped()) {
    std::this_thread::sleep_for(kPollInterval);
  }
}

cudaStream_t NcclCommunicator::stream() const {
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(options_.device)).stream();
}

// Runs under the flag's lock and must not block: NCCL's abort blocks for as long as its kernels need to exit.
void NcclCommunicator::abort_in_background() {
  if (peers_) peers_->abort();
  aborting_ = std::thread([this] {
    ::cudaSetDevice(options_.device);
    // If the issuing thread does not release the lock, it is stuck in a kernel launch that only the abort can end.
    bool held = handle_mutex_.try_lock_for(kMaxCall);
    if (handle_) ::ncclCommAbort(handle_);
    handle_ = nullptr;
    if (held) handle_mutex_.unlock();
  });
}

ncclResult_t NcclCommunicator::asynchronous_state() {
  std::lock_guard lock(handle_mutex_);
  ncclResult_t state = ncclSuccess;
  if (!handle_) return ncclInvalidUsage;
  ncclResult_t query = ::ncclCommGetAsyncError(handle_, &state);
  return query == ncclSuccess ? state : query;
}

// A late collective is reported as a timeout, no matter who noticed it and aborted the group.
void NcclCommunicator::check(const std::string& what) const {
  if (!abort_flag_->tripped()) return;
  if (const auto message = collective_timeout_->message()) throw TimeoutError(*message);
  abort_flag_->check(what);
}

// Waits until the host's part of a call is done; NCCL allows no other call on the communicator before that.
void NcclCommunicator::wait_until_issued(ncclResult_t result, const std::string& what, Deadline deadline) {
  while (is_in_progress(result)) {
    check(what);
    if (deadline.passed()) {
      auto message = fmt::format("{} timed out after {:.1f} s: not all members have arrived", what,
                                 static_cast<double>(options_.timeout.count()) / 1000);
      abort_flag_->trip(message);
      throw TimeoutError(message);
    }
    result = asynchronous_state();
    if (is_in_progress(result)) std::this_thread::sleep_for(kPollInterval);
  }
  if (result == ncclSuccess) return;
  // The store reports which member died, perhaps with a short delay.
  if (abort_flag_->wait_until_tripped(kPeerLossDelay)) check(what);
  const std::string text = fmt::format("NCCL: {} ({})", ::ncclGetErrorString(result), ::ncclGetLastError(nullptr));
  abort_flag_->trip(text);
  // The cause is local: looking for a failed peer would not find it.
  if (const auto code = local_error(result)) {
    throw_if_resource_failed(text, what);
    throw Error(*code, fmt::format("{} failed: {}. Set NCCL_DEBUG=INFO in the environment for details", what, text));
  }
  abort_flag_->check(what);
}

// Enqueues on the current stream. A captured call has no mark: it does not count, since the capture may still fail on
// one member only.
template <class Enqueue>
StreamCounters::Mark NcclCommunicator::issue(const std::string& what, Enqueue&& call) {
  c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(options_.device));
  ncclResult_t result = ncclInvalidUsage;
  {
    std::lock_guard lock(handle_mutex_);
    if (handle_) result = call(handle_, stream());
  }
  if (result != ncclSuccess) wait_until_issued(result, what, Deadline::after(options_.timeout));
  return counters_->mark(stream());
}

template <class Enqueue>
void NcclCommunicator::enqueue(const char* verb, const ConstBuffer& buffer, Enqueue&& call) {
  check_buffer(buffer);
  std::string what = describe_call(verb, buffer, options_.name);
  check(what);
  if (buffer.count == 0) return;
  const auto mark = issue(what, call);
  if (mark.counter) collective_timeout_->add(mark.counter, mark.value, ++last_call_, std::move(what));
}

void NcclCommunicator::all_reduce(Buffer buffer, ReduceOp op) {
  enqueue("all_reduce", buffer, [&](ncclComm_t comm, cudaStream_t on) {
    if (are_connected_ && peers_->takes_sum(buffer, op)) return as_nccl(peers_->all_reduce(buffer, on));
    return ::ncclAllReduce(buffer.data, buffer.data, buffer.count, nccl_type(buffer.dtype), nccl_op(op), comm, on);
  });
}

void NcclCommunicator::reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) {
  check_reduce_scatter(in, out, options_.size);
  enqueue("reduce_scatter", in, [&](ncclComm_t comm, cudaStream_t on) {
    return ::ncclReduceScatter(in.data, out.data, out.count, nccl_type(in.dtype), nccl_op(op), comm, on);
  });
}

void NcclCommunicator::all_gather(ConstBuffer in, Buffer out) {
  check_all_gather(in, out, options_.size);
  enqueue("all_gather", in, [&](ncclComm_t comm, cudaStream_t on) {
    if (are_connected_ && peers_->takes_gather(in)) return as_nccl(peers_->all_gather(in, out, on));
    return ::ncclAllGather(in.data, out.data, in.count, nccl_type(in.dtype), comm, on);
  });
}

// One NCCL group: all pairs communicate at the same time, so no order can deadlock them.
void NcclCommunicator::all_to_all(ConstBuffer in, Buffer out) {
  check_all_to_all(in, out, options_.size);
  const size_t count = in.count / static_cast<size_t>(options_.size), bytes = count * size_of(in.dtype);
  enqueue("all_to_all", in, [&](ncclComm_t comm, cudaStream_t on) {
    return as_group([&](const AddToGroup& add) {
      for (int peer = 0; peer < options_.size; ++peer) {
        const size_t offset = static_cast<size_t>(peer) * bytes;
        add(::ncclSend(static_cast<const char*>(in.data) + offset, count, nccl_type(in.dtype), peer, comm, on));
        add(::ncclRecv(static_cast<char*>(out.data) + offset, count, nccl_type(out.dtype), peer, comm, on));
      }
    });
  });
}

void NcclCommunicator::broadcast(Buffer buffer, int root) {
  check_member(root, options_.size);
  enqueue("broadcast", buffer, [&](ncclComm_t comm, cudaStream_t on) {
    return ::ncclBroadcast(buffer.data, buffer.data, buffer.count, nccl_type(buffer.dtype), root, comm, on);
  });
}

// NCCL connects a pair in one direction when a group first uses it, and both ends wait on the host until the other
// does. A member that sends and receives in one group would never meet one that does so in two. So the first exchange
// of a pair, at both ends, carries a byte in each direction.
std::set<int> NcclCommunicator::peers_without_connection(std::span<const Outgoing> sends,
                                                         std::span<const Incoming> receives) const {
  std::set<int> out;
  for (const auto& [buffer, to] : sends) {
    if (buffer.count > 0 && !connected_.contains(to)) out.insert(to);
  }
  for (const auto& [buffer, from] : receives) {
    if (buffer.count > 0 && !connected_.contains(from)) out.insert(from);
  }
  return out;
}

void NcclCommunicator::exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) {
  check_exchange(sends, receives, options_.rank, options_.size);
  std::string what = describe_exchange(sends, receives, options_.name);
  check(what);
  const auto has_data = [](const auto& part) { return part.buffer.count > 0; };
  if (std::none_of(sends.begin(), sends.end(), has_data) && std::none_of(receives.begin(), receives.end(), has_data)) {
    return;
  }
  const auto new_peers = peers_without_connection(sends, receives);
  const auto mark = issue(what, [&](ncclComm_t comm, cudaStream_t on) {
    return as_group([&](const AddToGroup& add) {
      for (const int peer : new_peers) {
        add(::ncclSend(barrier_token_, 1, ncclUint8, peer, comm, on));
        add(::ncclRecv(greeting_, 1, ncclUint8, peer, comm, on));
      }
      for (const auto& [buffer, to] : sends) {
        if (buffer.count > 0) add(::ncclSend(buffer.data, buffer.count, nccl_type(buffer.dtype), to, comm, on));
      }
      for (const auto& [buffer, from] : receives) {
        if (buffer.count > 0) add(::ncclRecv(buffer.data, buffer.count, nccl_type(buffer.dtype), from, comm, on));
      }
    });
  });
  connected_.insert(new_peers.begin(), new_peers.end());
  if (!mark.counter) return;
  std::vector<Message> messages;
  for (const auto& [buffer, to] : sends) {
    if (buffer.count > 0) messages.push_back(exchanges_.count(options_.rank, to));
  }
  for (const auto& [buffer, from] : receives) {
    if (buffer.count > 0) messages.push_back(exchanges_.count(from, options_.rank));
  }
  collective_timeout_->add(mark.counter, mark.value, exchanges_.next_exchange(), std::move(what), std::move(messages));
}

void NcclCommunicator::barrier() {
  all_reduce({barrier_token_, 1, DType::kUInt8}, ReduceOp::kMax);
  wait_for_stream(fmt::format("barrier in group '{}'", options_.name));
}

void NcclCommunicator::wait_for_completion() {
  wait_for_stream(fmt::format("wait for the collectives of group '{}'", options_.name));
}

void NcclCommunicator::wait_until(const std::function<bool()>& is_reached) {
  poll(is_reached, fmt::format("wait for the collectives of group '{}'", options_.name));
}

CallState NcclCommunicator::calls() const {
  CallState state{last_call_, collective_timeout_->oldest(), exchanges_.counts()};
  if (state.oldest) state.oldest->blocks_host = host_waits_;
  return state;
}

void NcclCommunicator::wait_for_stream(const std::string& what) {
  c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(options_.device));
  check(what);
  if (auto outcome = ::cudaEventRecord(event_, stream()); outcome != cudaSuccess) {
    check(what);
    check_cuda(outcome, what);
  }
  poll(
      [&] {
        const cudaError_t state = ::cudaEventQuery(event_);
        if (state != cudaErrorNotReady) check_cuda(state, what);
        return state == cudaSuccess;
      },
      what);
}

// Polls instead of blocking, since a kernel whose peer is dead never ends by itself.
void NcclCommunicator::poll(const std::function<bool()>& is_reached, const std::string& what) {
  check(what);
  host_waits_ = true;
  const ScopeExit over([this] { host_waits_ = false; });
  const auto deadline = Deadline::after(options_.timeout);
  for (int round = 0;; ++round) {
    try {
      if (is_reached()) break;
    } catch (const std::exception&) {
      // An abort, or the end of a member whose memory is mapped, may surface as a device error.
      if (abort_flag_->wait_until_tripped(kPeerLossDelay)) check(what);
      throw;
    }
    if (round < kSpins) continue;
    check(what);
    if (auto result = asynchronous_state(); result != ncclSuccess && !is_in_progress(result))
      wait_until_issued(result, what, deadline);
    if (deadline.passed()) {
      const auto message = timeout_message(what, options_.timeout);
      abort_flag_->trip(message);
      throw TimeoutError(message);
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  check(what);
}

}  // namespace dslaunch::comm
