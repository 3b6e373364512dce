#include "comm/gloo/call.hpp"

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::comm {

namespace {

[[noreturn]] void throw_timeout(const Call& call, int member, const char* missing_action) {
  throw TimeoutError(
      fmt::format("{} timed out after {:.1f} s: member {} {}. The member hangs, or is in another collective", call.what,
                  static_cast<double>(call.timeout.count()) / 1000, member, missing_action));
}

}  // namespace

void Call::wait_received(FullMesh::Region& region, int member) const {
  if (!region.wait_received(deadline)) throw_timeout(*this, member, "sent no data");
}

void Call::wait_sent(FullMesh::Region& region, int member) const {
  if (!region.wait_sent(deadline)) throw_timeout(*this, member, "accepted no data");
}

}  // namespace dslaunch::comm
