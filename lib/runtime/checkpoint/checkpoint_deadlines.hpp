// How long the ranks of a save or a resume wait for each other.
#pragma once
#include <chrono>
#include <vector>

#include "base/deadline.hpp"
#include "runtime/checkpoint/checkpoint_metadata.hpp"

namespace dslaunch::runtime {

// For the slowest rank to write its part of these tensors and their optimizer's state, or to read it: half an hour for
// what storage does at times, and all bytes at a speed that only broken storage stays below. The same on all ranks.
std::chrono::milliseconds time_for_checkpoint(const std::vector<SavedTensor>& tensors);

// To hand a few words to the store. Not bound to the deadline of the work that they are about: who has just waited for
// a late rank until then could not tell the others its name.
inline Deadline to_tell() {
  return Deadline::after(std::chrono::seconds(10));
}

// For the verdict on work that had to end by `deadline`: it may be told at the very end of that.
inline Deadline to_hear_verdict(Deadline deadline) {
  return Deadline::after(deadline.left() + std::chrono::seconds(30));
}

}  // namespace dslaunch::runtime
