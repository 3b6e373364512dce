// Opens the module with libssh in it. Once, never closed; any thread.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "base/format.hpp"
#include "spawn/ssh/ways.hpp"

namespace dslaunch::spawn {
namespace {

constexpr const char* kAdvice =
    "Remote hosts need it and libssh: install Debian's package libssh-4, or use the ssh program instead "
    "(--ssh_program ssh); DSLAUNCH_MODULE_DIR names another folder of modules";

// As the modules of lib/comm: $DSLAUNCH_MODULE_DIR, else lib/dslaunch beside the program's bin.
std::string module_path() {
  constexpr const char* kFile = "/libdslaunch_ssh.so";
  if (const char* given = std::getenv("DSLAUNCH_MODULE_DIR"); given && *given) return std::string(given) + kFile;
  std::string path(4096, '\0');
  ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) throw SystemError("readlink", "/proc/self/exe");
  path.resize(static_cast<size_t>(length));
  return path.substr(0, path.rfind('/')) + "/../lib/dslaunch" + kFile;
}

void* symbol(void* module, const std::string& path, const char* name) {
  void* found = ::dlsym(module, name);
  DSL_CHECK(found, fmt::format("{} has no symbol {}", path, name));
  return found;
}

ModuleFactory open_module() {
  std::string path = module_path();
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("cannot open the module {}: {}. {}", path, ::dlerror(), kAdvice));
  }
  auto version = reinterpret_cast<const char* (*)()>(symbol(module, path, "dslaunch_module_version"));
  if (std::strcmp(version(), DSL_VERSION) != 0) {
    throw UserError(ExitCode::kUnavailable, fmt::format("{} is of version {}, this program of {}: reinstall dslaunch",
                                                        path, version(), DSL_VERSION));
  }
  return reinterpret_cast<ModuleFactory>(symbol(module, path, "dslaunch_open_ssh_link"));
}

}  // namespace

std::unique_ptr<CommandLink> open_libssh_link(const SshTarget& target, const std::vector<std::string>& argv,
                                              const SshOptions& options) {
  static const ModuleFactory open = open_module();
  std::string error;
  std::unique_ptr<CommandLink> link(open(target, argv, options, error));
  if (!link) throw Error(ExitCode::kIoError, error);
  return link;
}

}  // namespace dslaunch::spawn
