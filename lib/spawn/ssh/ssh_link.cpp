#include "spawn/ssh/ssh_link.hpp"

#include "spawn/ssh/transports.hpp"

namespace dslaunch::spawn {

std::unique_ptr<CommandLink> open_ssh_link(const SshTarget& target, const std::vector<std::string>& argv,
                                           const SshOptions& options) {
  return options.program.empty() ? open_libssh_link(target, argv, options)
                                 : open_ssh_program_link(target, argv, options);
}

}  // namespace dslaunch::spawn
