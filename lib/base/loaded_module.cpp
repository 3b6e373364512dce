#include "base/loaded_module.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch {
namespace {

std::string directory_of_program() {
  std::string path(4096, '\0');
  ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) throw SystemError("readlink", "/proc/self/exe");
  path.resize(static_cast<size_t>(length));
  return path.substr(0, path.rfind('/'));
}

std::string directory_of_modules() {
  if (const char* given = std::getenv("DSLAUNCH_MODULE_DIR"); given && *given) return given;
  return directory_of_program() + "/../lib/dslaunch";
}

}  // namespace

// Uses dlmopen as an alternative to dlopen: the sanitizers intercept dlopen and reject RTLD_DEEPBIND, since a library
// could then find libc's malloc before theirs. A module of an instrumented build lists the sanitizer library first
// among its dependencies.
LoadedModule::LoadedModule(const char* file_name, const char* advice, int more_dlopen_flags)
    : path_(directory_of_modules() + "/" + file_name),
      handle_(::dlmopen(LM_ID_BASE, path_.c_str(), RTLD_NOW | RTLD_LOCAL | more_dlopen_flags)) {
  if (!handle_) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("cannot open the module {}: {}. {}", path_, ::dlerror(), advice));
  }
  const std::string_view version = function<const char* (*)()>("dslaunch_module_version")();
  if (version != DSL_VERSION) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("version mismatch: {} has version {}, this program has version {}; reinstall dslaunch",
                                path_, version, DSL_VERSION));
  }
}

void* LoadedModule::symbol(const char* name) const {
  void* found = ::dlsym(handle_, name);
  DSL_CHECK(found, fmt::format("{} has no symbol {}", path_, name));
  return found;
}

std::string directory_of_loaded_library(const char* file_name) {
  struct Search {
    const char* file_name;
    std::string directory;
  } search{file_name, {}};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* wanted = static_cast<Search*>(data);
        const char* slash = info->dlpi_name ? std::strrchr(info->dlpi_name, '/') : nullptr;
        if (!slash || std::strcmp(slash + 1, wanted->file_name) != 0) return 0;
        wanted->directory.assign(info->dlpi_name, slash);
        return 1;
      },
      &search);
  return search.directory;
}

}  // namespace dslaunch
