#include "comm/gloo/call.hpp"

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::comm {

namespace {

[[noreturn]] void throw_late(const Call& call, int member, const char* what_it_did_not) {
  throw TimeoutError(
      fmt::format("{} was not done within {:.1f} s: member {} {}. It hangs, or it is in another collective", call.what,
                  static_cast<double>(call.timeout.count()) / 1000, member, what_it_did_not));
}

}  // namespace

void Call::wait_received(FullMesh::Region& region, int member) const {
  if (!region.wait_received(deadline)) throw_late(*this, member, "sent nothing");
}

void Call::wait_sent(FullMesh::Region& region, int member) const {
  if (!region.wait_sent(deadline)) throw_late(*this, member, "took nothing");
}

}  // namespace dslaunch::comm
