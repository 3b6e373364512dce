// The way of sub-groups through host memory, in the order of their updates: from the file into a buffer of the ring,
// and back when they have changed. While one is updated, the next ones may be read and the ones before it written. One
// thread.
//
//   begin(order)   then for each sub-group: next(), its update, store()   then finish()
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/offload/state_file.hpp"

namespace dslaunch::runtime::offload {

class UpdateRing {
 public:
  struct Options {
    bool reads_ahead = false;    // as many sub-groups as there are buffers for, but for one that is written
    bool writes_behind = false;  // store() returns before the sub-group is written
  };

  UpdateRing(std::shared_ptr<StateFile> file, Options options);

  // What an order before it has left unfinished, after an error, is not waited for.
  void begin(std::vector<SubGroup> order);
  // The arrays of the next sub-group, in a buffer, until store(). Throws Error (74) if they cannot be read.
  StateArrays next();
  void store();
  // Waits until all is written.
  void finish();

 private:
  struct Buffer {
    StateFile::Tickets reads, writes;
  };

  int index_of(size_t sub_group) const { return static_cast<int>(sub_group % buffers_.size()); }
  void read_up_to(size_t end);

  const std::shared_ptr<StateFile> file_;
  const Options options_;
  std::vector<Buffer> buffers_;
  std::vector<SubGroup> order_;
  size_t num_read_ = 0, num_returned_ = 0;  // of the order: whose reads have begun; which next() has returned
};

}  // namespace dslaunch::runtime::offload
