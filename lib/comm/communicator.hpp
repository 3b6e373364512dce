// Collectives over one group of ranks. Backends: Gloo for host memory, NCCL for device memory; one contract test serves
// both.
//
// Threads: one thread issues collectives on a communicator; abort() may come from any thread. All ranks of the group
// must issue the same sequence. Host backends have finished when a call returns. Device backends enqueue on the current
// stream of the calling thread's device and return; wait_for_completion() surfaces asynchronous errors. Failure: the
// death of a peer or abort() makes pending and later calls throw PeerError on every survivor.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/calls.hpp"
#include "rendezvous/store.hpp"

namespace dslaunch::comm {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat16, kInt64, kUInt8 };
size_t size_of(DType dtype);

enum class ReduceOp : uint8_t { kSum, kMax };

// `count` elements of `dtype`; data may be null when count is 0. No alignment beyond the element's is needed.
struct Buffer {
  void* data = nullptr;
  size_t count = 0;
  DType dtype = DType::kFloat32;
};
struct ConstBuffer {
  const void* data = nullptr;
  size_t count = 0;
  DType dtype = DType::kFloat32;
  ConstBuffer(const void* d, size_t c, DType t) : data(d), count(c), dtype(t) {}
  ConstBuffer(const Buffer& b) : data(b.data), count(b.count), dtype(b.dtype) {}  // NOLINT: a Buffer is one
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // within the group
  virtual int size() const = 0;

  virtual void all_reduce(Buffer buffer, ReduceOp op) = 0;  // in place
  // in.count == size() * out.count; rank r receives the r-th slice of the sum. `out` may be that slice of `in`.
  virtual void reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) = 0;
  // out.count == size() * in.count; `in` may be this rank's slice of `out`.
  virtual void all_gather(ConstBuffer in, Buffer out) = 0;
  // Both hold size() slices of one length: rank r receives this rank's r-th slice of `in`, and its own slice goes to
  // the r-th of `out`; this rank's own is copied. `out` shares no memory with `in`.
  virtual void all_to_all(ConstBuffer in, Buffer out) = 0;
  virtual void broadcast(Buffer buffer, int root) = 0;
  // Between two members, for pipelines, which are to come; the contract test is their only caller so far.
  virtual void send(ConstBuffer buffer, int destination) = 0;
  virtual void receive(Buffer buffer, int source) = 0;
  virtual void barrier() = 0;
  // Device backends: blocks until everything enqueued so far has finished, and throws what went wrong. Host: no effect.
  virtual void wait_for_completion() = 0;
  // Blocks until `is_reached` is true (a point in a stream; it is asked again and again), and throws what goes wrong
  // meanwhile: on a device, nothing else of what was enqueued is waited for.
  virtual void wait_until(const std::function<bool()>& is_reached) = 0;
  // Any thread, idempotent, does not block: pending and later calls throw PeerError with this reason.
  virtual void abort(const std::string& reason) = 0;
  // Any thread, and takes no lock that is held for long. Empty for a backend that never waits for others.
  virtual CallState calls() const { return {}; }
};

struct CommunicatorOptions {
  std::string name = "world";  // distinguishes groups in the store; the same on all members
  int rank = 0, size = 1;
  int device = -1;                                    // CUDA device index for NCCL; -1 for host memory
  std::string host = "127.0.0.1";                     // address of this rank that peers can reach (Gloo)
  std::chrono::milliseconds timeout{30 * 60 * 1000};  // of one collective
};

// Backends live in modules that are opened on demand (RTLD_LOCAL, Gloo's with RTLD_DEEPBIND too). A size of 1 gets a
// communicator that copies: in host memory without any module, on a device through CUDA's. Throws UserError(69) naming
// the module and what to install when it cannot be opened.
std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions& options, rendezvous::Store& store);

}  // namespace dslaunch::comm
