// The exports of libdslaunch_ssh.so.
#include "spawn/ssh/libssh/libssh_link.hpp"

extern "C" {

__attribute__((visibility("default"))) const char* dslaunch_module_version() {
  return DSL_VERSION;
}

__attribute__((visibility("default"))) dslaunch::spawn::CommandLink* dslaunch_open_ssh_link(
    const dslaunch::spawn::SshTarget& target, const std::vector<std::string>& argv,
    const dslaunch::spawn::SshOptions& options, std::string& error) {
  try {
    return new dslaunch::spawn::LibsshLink(target, argv, options);
  } catch (const std::exception& failed) {
    error = failed.what();
    return nullptr;
  }
}
}
