// How long the ranks of a save or a resume wait for each other.
#pragma once
#include <chrono>

#include "base/deadline.hpp"

namespace dslaunch::runtime {

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
