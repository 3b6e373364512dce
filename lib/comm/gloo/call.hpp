// One collective in progress: its name in messages, its deadline, and the tags of its messages.
#pragma once
#include <cstdint>
#include <string>

#include "base/deadline.hpp"
#include "comm/gloo/full_mesh.hpp"

namespace dslaunch::comm {

struct Call {
  std::string what;
  uint64_t number = 0;  // the same on all members: they issue the same sequence
  std::chrono::milliseconds timeout{};
  Deadline deadline = Deadline::never();

  enum Phase : uint64_t { kContribute = 0, kSpread = 1 };
  uint64_t tag(Phase phase, size_t piece = 0) const { return (number << 24) | (phase << 23) | piece; }

  // Throw TimeoutError that names the member.
  void wait_received(FullMesh::Region& region, int member) const;
  void wait_sent(FullMesh::Region& region, int member) const;
};

}  // namespace dslaunch::comm
