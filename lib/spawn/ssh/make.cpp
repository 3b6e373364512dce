// Loads the module that contains libssh. Any thread.
#include "base/error.hpp"
#include "base/loaded_module.hpp"
#include "spawn/ssh/transports.hpp"

namespace dslaunch::spawn {
namespace {

constexpr const char* kAdvice =
    "Remote hosts need it and libssh: install Debian's package libssh-4, or use the ssh program instead "
    "(--ssh_program ssh); DSLAUNCH_MODULE_DIR names another directory of modules";

}  // namespace

std::unique_ptr<CommandLink> open_libssh_link(const SshTarget& target, const std::vector<std::string>& argv,
                                              const SshOptions& options) {
  static const LoadedModule module("libdslaunch_ssh.so", kAdvice);
  static const auto open = module.function<ModuleFactory>("dslaunch_open_ssh_link");
  std::string error;
  std::unique_ptr<CommandLink> link(open(target, argv, options, error));
  if (!link) throw Error(ExitCode::kIoError, error);
  return link;
}

}  // namespace dslaunch::spawn
