// Updates of optimizer state that rests in host memory or in files, by a thread of its own: while it works, the next
// step's forward is issued, and each unit waits until its own parameters are there.
//
//   expect_early()  the engine's thread, before the last backward of a step whose updates may be early
//   begin_early()   autograd's thread, in that backward: a group's gradients are on their way
//   begin()         the engine's thread, after backward: the gradients are on their way to the host
//   wait()          before a group's parameters are read; finish() before the state itself is read
//
// The thread works in the order of the groups, which is the order of their use, in chunks: the update of a chunk, on
// the cores of the rank, then its copy to the device, which overlaps the next chunk's update. It never issues a
// collective.
//
// State in files passes through a ring of buffers (update_ring.hpp), sub-group by sub-group, which are then the chunks.
// Parameters in files are written from the blocks through which others reach the device.
//
// An early update of a group begins in the backward of its step, when the group's gradients have arrived and its
// parameters have been read for the last time; begin() then leaves to the order of use what has not begun. This takes a
// step whose gradient factor is known before, since it cannot be taken back: neither clipping nor a loss scale. Steps
// that are not finite are known too late as well, so each group is checked alone: from the first one that is not
// finite, or a loss that is not, nothing is updated any more, for good. What began before stays: such a step, like one
// that fails in its backward, may leave some groups updated and others not, and the run has to end. After a step that
// did not get to its begin(), the state is refused to everybody.
// State and parameters in files are never early: sub-groups pass through the ring in an order that is known when it
// begins, and backward's own gradients and parameters have the disk. Neither are updates that are delayed.
//
// A delayed update runs beside the whole next step, forward and backward, which use the parameters from before it. Its
// results are staged, in host memory or, beside state in files, there, and published by the begin() after it, so
// gradients are one step stale.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "runtime/offload/parameter_file.hpp"
#include "runtime/offload/state_file.hpp"
#include "runtime/offload/update_ring.hpp"
#include "runtime/offload/upload_ring.hpp"
#include "runtime/sharding/pending_updates.hpp"
#include "runtime/state/state_arrays.hpp"

namespace dslaunch::runtime::offload {

// What a step decides on the device. Update functions get it in host memory.
struct UpdateScalars {
  at::Tensor gradient_factor;  // fp32
  at::Tensor skip;             // fp32; not 0: the update writes nothing
  at::Tensor applied_steps;    // int64; undefined: the host knows the number
};

struct HostUpdateOptions {
  at::Device device = at::kCPU;
  std::optional<int64_t> delayed_after;       // updates are delayed but for so many at first; empty: never
  int64_t chunk_numel = 1 << 24;              // the most elements that are updated at once
  int num_threads = 1;                        // that share a chunk
  std::shared_ptr<StateFile> file;            // of the spans whose state is stored; null: there are none
  UpdateRing::Options ring;                   // how sub-groups come from there
  std::shared_ptr<ParameterFile> parameters;  // of spans whose parameters are stored; null: there are none. Its blocks
                                              // are used, and chunks are multiples of kChunkMultiple
  std::function<void()> check_peers;  // called now and then while the engine's thread waits; throws if one was lost
};

// Threads for the updates of one rank of `ranks_of_host`: `share` of its cores, at least one. `own_cores`: those that
// it may run on; ranks that are not bound share the `host_cores`.
int choose_update_threads(int own_cores, int host_cores, int ranks_of_host, double share);

class HostUpdates final : public PendingUpdates {
 public:
  // Updates masters, moments and low-precision copies of these arrays; all of them are in host memory now. Any thread.
  using Update = std::function<void(std::span<const SpanState> state, const UpdateScalars& scalars)>;

  // `streams` must outlive this object.
  HostUpdates(HostUpdateOptions options, int num_groups, const StepStreams& streams);
  // Gives up an update that is still running, between two chunks.
  ~HostUpdates() override;
  HostUpdates(const HostUpdates&) = delete;
  HostUpdates& operator=(const HostUpdates&) = delete;

  // Whether updates may be early, as far as it depends on where the state rests.
  bool may_be_early() const { return !options_.delayed_after && !options_.file && !options_.parameters; }
  // From now until begin(), begin_early() begins updates. `factor`: the one that begin() will get, on the host; `loss`:
  // of this rank's micro batches, on any device.
  void expect_early(const at::Tensor& factor, const at::Tensor& loss, Update update);
  bool takes_early_groups() const override;
  void begin_early(std::span<const SpanState> group, const at::Tensor& squares) override;

  // Begins the update of the offloaded spans of `state`, in their order, but for those that have begun early. Their
  // gradients and `scalars` have arrived when the current stream has reached this point; a delayed update reads the
  // gradients until the next begin() returns. Before it, waits for the update before.
  void begin(std::span<const SpanState> state, const UpdateScalars& scalars, Update update);
  // The run goes on after so many updates.
  void continue_after(int64_t num_updates) { num_begun_ = num_updates; }
  StreamMark wait(int group) override;
  // Returns when all updates are published and nothing is being written any more, neither on the host nor on the device
  // (in the current stream).
  void finish();

 private:
  struct Job {
    std::vector<SpanState> state;
    UpdateScalars scalars;
    std::shared_ptr<c10::Event> arrived;  // null on the host
    Update update;                        // empty: only publishes what is staged
    bool is_delayed = false, is_early = false;
    std::vector<at::Tensor> finite;  // scalars on the host, when it has arrived: else it writes nothing
  };
  // The early updates of a step.
  struct Early {
    Job any;                       // what they have in common
    std::deque<Job> landed;        // that have not begun
    std::vector<bool> has_landed;  // by group
    std::vector<bool> has_begun;   // by group
  };
  // What a delayed update has written: the parameters of its spans, in their order; empty: they are in the state's
  // file.
  struct Staged {
    std::vector<SpanState> state;
    std::vector<at::Tensor> parameters;
    std::shared_ptr<c10::Event> copied;  // to the device; null: free
  };
  // Where an update writes the parameters of a chunk: to host memory, or into a block of the ring, from where `send`
  // takes them on.
  struct Target {
    at::Tensor memory;
    std::function<void()> send;
  };

  void start(Job job);
  std::vector<bool> end_early();
  bool has_work() const { return job_ || (early_ && !early_->landed.empty()); }
  Job next_job();
  void set_pending(std::span<const SpanState> state);
  void run_thread();
  void run(const Job& job);
  bool wait_for_arrival(const Job& job);
  bool writes(const Job& job);
  void update(const Job& job);
  void update_span(const SpanState& state, const at::Tensor& staged, const Job& job);
  void update_stored_span(const SpanState& state, const Job& job);
  void begin_stored(const Job& job);
  void update_chunk(SpanState chunk, const Target& target, const Job& job);
  Target target_at_rest(const StateArrays& arrays);
  Target target_in_state_file(const SubGroup& sub_group, at::ScalarType dtype);
  Staged& next_staging(const Job& job);
  void publish_staged();
  void publish_from_state_file(const StateArrays& arrays);
  void publish_from_memory(const at::Tensor& staged, const StateArrays& arrays);
  void publish(int group);
  bool is_stopping();
  // Until the job is done, or the group is published.
  void wait_for(std::optional<int> group);

  // fixed after construction
  const HostUpdateOptions options_;
  const StepStreams& streams_;
  // the engine's thread
  int64_t num_begun_ = 0;
  // the update thread, or the engine's while there is no job
  UploadRing ring_;
  std::optional<UpdateRing> stored_;  // empty: no state is in files
  std::array<Staged, 2> staging_;     // one is filled while the other is copied
  size_t filled_ = 0;
  bool is_staged_ = false;    // staging_[filled_] is to be published
  bool is_given_up_ = false;  // something was not finite: early updates write nothing any more
  // guarded by mutex_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Job> job_;             // requested, or being worked on; early ones come before it
  std::optional<Early> early_;         // from expect_early() to begin()
  std::vector<bool> is_pending_;       // by group
  std::vector<StreamMark> published_;  // by group: the end of its copies to the device
  std::exception_ptr failure_;         // of the update; whoever waits throws it
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace dslaunch::runtime::offload
