// How long the ranks of a save or a resume wait for each other.
#pragma once
#include <algorithm>
#include <chrono>
#include <vector>

#include "base/deadline.hpp"
#include "runtime/checkpoint/checkpoint_metadata.hpp"

namespace dslaunch::runtime {

// For the slowest rank to write its part of these tensors and their optimizer's state, or to read it: half an hour for
// what storage does at times, and all bytes at a speed that only broken storage stays below. The same on all ranks.
std::chrono::milliseconds time_for_checkpoint(const std::vector<SavedTensor>& tensors);

// To hand words to the store, or for a step of moments at the end of long work: `deadline`, or longer than a host that
// is out of reach may stay in the job. Who has waited for a late rank until the deadline could not tell its name
// otherwise.
inline Deadline with_a_moment(Deadline deadline) {
  return Deadline::after(std::max<std::chrono::milliseconds>(deadline.left(), std::chrono::seconds(30)));
}

// For the verdict on work that had to end by `deadline`: it may be told at the very end of that.
inline Deadline to_hear_verdict(Deadline deadline) {
  return Deadline::after(deadline.left() + std::chrono::minutes(1));
}

}  // namespace dslaunch::runtime
