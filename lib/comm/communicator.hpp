// Collectives over one group of ranks. Backends: Gloo for host memory, NCCL for device memory; one contract test serves
// both.
//
// Threads: one thread issues collectives on a communicator; abort() may come from any thread. All ranks of the group
// must issue the same sequence of collectives; an exchange concerns only the members that it names. Host backends have
// finished when a call returns. Device backends enqueue on the current stream of the calling thread's device and
// return; wait_for_completion() surfaces asynchronous errors. Failure: the death of a peer or abort() makes pending and
// later calls throw PeerError on every survivor.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "comm/calls.hpp"
#include "rendezvous/store.hpp"

namespace dslaunch::comm {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat16, kInt64, kUInt8 };
size_t size_of(DType dtype);

enum class ReduceOp : uint8_t { kSum, kMax };

// `count` elements of `dtype`; data may be null when count is 0. Needs only the element's own alignment.
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

// Parts of an exchange.
struct Outgoing {
  ConstBuffer buffer;
  int destination = 0;
};
struct Incoming {
  Buffer buffer;
  int source = 0;
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
  // Both hold size() slices of equal length. This rank's r-th slice of `in` goes to rank r, and the r-th slice of `out`
  // comes from rank r; this rank's own slice is copied. `out` must not share memory with `in`.
  virtual void all_to_all(ConstBuffer in, Buffer out) = 0;
  virtual void broadcast(Buffer buffer, int root) = 0;
  // Sends and receives between pairs of members, all of them at the same time: it waits for all, and none waits for
  // another, so no order in which members issue them can deadlock within an exchange. The n-th message to a member
  // meets the n-th that it receives from this one, in whichever exchanges; both ends have equal counts, and empty
  // messages are left out. No receive may share memory with another part of the exchange.
  virtual void exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) = 0;
  // An exchange of one message.
  void send(ConstBuffer buffer, int destination) {
    const Outgoing one{buffer, destination};
    exchange({&one, 1}, {});
  }
  void receive(Buffer buffer, int source) {
    const Incoming one{buffer, source};
    exchange({}, {&one, 1});
  }
  virtual void barrier() = 0;
  // Device backends: blocks until everything enqueued so far has finished, and throws any error. Host: no effect.
  virtual void wait_for_completion() = 0;
  // Blocks until `is_reached` (a point in a stream; polled repeatedly) returns true, and throws any error meanwhile. On
  // a device, does not wait for any other enqueued work.
  virtual void wait_until(const std::function<bool()>& is_reached) = 0;
  // Any thread, idempotent, does not block: pending and later calls throw PeerError with this reason.
  virtual void abort(const std::string& reason) = 0;
  // How small sums and gathers travel, for a report, as a clause; empty: as all others do.
  virtual std::string small_sums() const { return {}; }
  // Any thread; takes no lock that is held for long. Empty for a backend that never waits for other ranks.
  virtual CallState calls() const { return {}; }
};

struct CommunicatorOptions {
  std::string name = "world";  // distinguishes groups in the store; the same on all members
  int rank = 0, size = 1;
  int device = -1;                                    // CUDA device index for NCCL; -1 for host memory
  std::string host = "127.0.0.1";                     // address of this rank that peers can reach (Gloo)
  std::chrono::milliseconds timeout{30 * 60 * 1000};  // of one collective
  // On devices of one host: small sums and gathers go through memory that the members map (nccl/peer_memory.hpp), with
  // other roundings than NCCL's. Those that a CUDA graph has captured are replayed in order with all others.
  bool uses_peer_memory = false;
};

// Backends are in modules that are loaded on demand (RTLD_LOCAL, Gloo's with RTLD_DEEPBIND too). A size of 1 gets a
// communicator that copies: in host memory without any module, on a device through CUDA's module. Throws UserError(69)
// naming the module and what to install when the module cannot be loaded.
std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions& options, rendezvous::Store& store);

}  // namespace dslaunch::comm
