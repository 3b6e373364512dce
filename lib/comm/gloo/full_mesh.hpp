// One connection to every other rank, set up through the store, and the messages on them. Converts Gloo's errors into
// plain outcomes, so that no other code needs to know them.
#pragma once
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <memory>
#include <mutex>
#include <vector>

#include "base/deadline.hpp"
#include "comm/abort_flag.hpp"
#include "comm/communicator.hpp"

namespace dslaunch::comm {

class FullMesh {
 public:
  // Throws PeerError or TimeoutError that name the missing ranks. A tripped flag breaks the mesh, even during set-up.
  FullMesh(const CommunicatorOptions& options, rendezvous::Store& store, AbortFlag& abort_flag, Deadline deadline);

  // Memory that messages are sent from or received into; may serve many messages at once.
  class Region {
   public:
    Region() = default;
    Region(FullMesh& mesh, const void* data, size_t bytes);
    // Begin a transfer; completions are waited for afterwards, one by one, in any order. Transfers of size 0 are not
    // sent.
    void send(int peer, uint64_t tag, size_t offset, size_t bytes);
    void receive(int peer, uint64_t tag, size_t offset, size_t bytes);
    // False at the deadline. Throws gloo's IoException when the connection is gone.
    bool wait_sent(Deadline deadline);
    bool wait_received(Deadline deadline);

   private:
    std::shared_ptr<gloo::transport::UnboundBuffer> buffer_;
  };

 private:
  void abort_all_waits();
  void watch(const std::shared_ptr<gloo::transport::UnboundBuffer>& buffer);

  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;
  std::mutex buffers_mutex_;
  bool is_aborted_ = false;                                             // guarded by buffers_mutex_
  std::vector<std::weak_ptr<gloo::transport::UnboundBuffer>> buffers_;  // guarded by buffers_mutex_
  struct Armed {
    AbortFlag& abort_flag;
    ~Armed() { abort_flag.disarm(); }
  } armed_;  // last member: destroyed first
};

}  // namespace dslaunch::comm
