// The libssh transport in a build without libssh's headers.
#include "base/error.hpp"
#include "spawn/ssh/transports.hpp"

namespace dslaunch::spawn {

std::unique_ptr<CommandLink> open_libssh_link(const SshTarget& target, const std::vector<std::string>&,
                                              const SshOptions&) {
  throw UserError(ExitCode::kUnavailable,
                  "cannot reach " + target.host +
                      ": this dslaunch was built without libssh. Use the ssh program instead (--ssh_program ssh), or "
                      "install libssh-dev and build again (./scripts/setup does both)");
}

}  // namespace dslaunch::spawn
