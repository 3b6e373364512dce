// Updates of parameters that have begun but need not have been written: those of offloaded state run beside the next
// step's forward. One thread at a time.
#pragma once
#include "runtime/state/step_streams.hpp"

namespace dslaunch::runtime {

class PendingUpdates {
 public:
  virtual ~PendingUpdates() = default;
  // Returns when the last update of this rank's slice of the flat group is written to host memory, or its copies to the
  // device are enqueued: they end at the mark. Throws the error of an update that failed.
  virtual StreamMark wait(int group) = 0;
};

}  // namespace dslaunch::runtime
