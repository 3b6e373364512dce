// Where reduced gradients go, apart from how they are reduced (gradient_reduction.hpp). A reduction delivers this
// rank's slice of each flat group once a step or, where every call's gradients are reduced at once, several times; the
// sink adds up what it gets.
//
// Threads: prepare() and deliver() on autograd's thread or the engine's, one at a time; finish() and release() on the
// engine's thread, when the current stream has waited for the streams on which slices were delivered.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/sharding/gradient_store.hpp"
#include "runtime/sharding/memory_transfers.hpp"
#include "runtime/state/state_arrays.hpp"

namespace dslaunch::runtime {

class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // Before each deliver(), on the thread's current stream: here a sink allocates what delivery needs. `room`: memory
  // of any floating type for the group's slice which the sink may use from now on until release(); undefined: the
  // reduction has none to lend.
  virtual void prepare(int group, const at::Tensor& room) = 0;
  // `slice`: this rank's part of the sum over the ranks, 1-D, of any floating type; it may be the room itself. It is
  // read on the current stream, possibly a side stream; work that is enqueued there after this call may overwrite it,
  // unless it is the room. `is_first`: the step's first slice of this group. `is_last`: no other one follows in this
  // step; a step's last slice is not always known to be the last, so finish() completes groups of which none was.
  virtual void deliver(int group, const at::Tensor& slice, bool is_first, bool is_last) = 0;
  // After the step's last delivery: the sums are complete; those of groups without any are zero.
  virtual void finish() = 0;
  // After the update, or when a step is given up: the sums are dropped.
  virtual void release() = 0;
};

struct DeviceGradientOptions {
  std::vector<Range> own_ranges;          // by group, what the state covers
  std::vector<at::ScalarType> dtypes;     // by group: of its first slice, where the reduction lends no room
  at::ScalarType sum_dtype = at::kFloat;  // in which further slices are added up
  at::Device device = at::kCPU;
};

// Adds up on the device; from finish() to release() the sums are the gradients of `state`, which must outlive the sink.
std::unique_ptr<GradientSink> make_device_gradients(DeviceGradientOptions options, std::span<SpanState> state);

struct HostGradientOptions {
  std::vector<Range> own_ranges;          // by group
  std::vector<bool> is_offloaded;         // by group
  std::vector<at::ScalarType> dtypes;     // by group: of its first slice, as host memory holds it
  at::ScalarType sum_dtype = at::kFloat;  // in which further slices are added up
  bool are_kept = false;                  // those of a step stay until the release() of the next one
  std::function<at::Tensor(int64_t numel, at::ScalarType dtype)> allocate;  // host memory
  std::shared_ptr<MemoryTransfers> copies = {};  // how they reach that memory; null: directly
  std::shared_ptr<GradientStore> store = {};     // instead of host memory: of spans whose state is stored
  std::function<at::Tensor(const at::Tensor& gradient)> sum_of_squares;
  // The parts of a span of the state that are squared. Empty: all of it.
  std::function<std::vector<Range>(const StateSpan&)> counted_ranges = {};
  // Early updates (pending_updates.hpp), of groups whose last slice is known to be the last. Asked and called in
  // deliver(); both may be empty, and are not used with `copies` or `store`, whose copies arrive later than the stream.
  std::function<bool()> begins_early = {};
  std::function<void(std::span<const SpanState> group, const at::Tensor& squares)> begin_early = {};
};

// Copies the gradients of offloaded groups to the host on the stream where they are delivered, bucket by bucket while
// backward runs; from finish() to release() they are the gradients of `state`, which has their sums of squares on the
// device. The copies have arrived when the stream that waits for the reductions has got there, those in a store or by
// `copies` when finish() returns. All other groups go to `resident`. The memory is
// allocated once, and once more for a unit that turns out to be called several times. `state` must outlive
// the sink.
std::unique_ptr<GradientSink> make_host_gradients(std::unique_ptr<GradientSink> resident, HostGradientOptions options,
                                                  std::span<SpanState> state);

}  // namespace dslaunch::runtime
