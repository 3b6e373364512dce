// The gloo backend of a build without Gloo's headers.
#include "base/error.hpp"
#include "comm/backends.hpp"

namespace dslaunch::comm {

std::unique_ptr<Communicator> make_gloo(const CommunicatorOptions&, rendezvous::Store&) {
  throw UserError(ExitCode::kUnavailable,
                  "this dslaunch was built without Gloo, so several ranks on CPUs cannot communicate: install "
                  "libgloo-dev and build again (./scripts/setup does both), or run one rank");
}

}  // namespace dslaunch::comm
