// A module that a program loads on demand: libdslaunch_gloo.so, libdslaunch_cuda.so, libdslaunch_ssh.so. Modules lie in
// $DSLAUNCH_MODULE_DIR, else in lib/dslaunch beside the program's bin. Never closed. Any thread.
#pragma once
#include <string>

namespace dslaunch {

class LoadedModule {
 public:
  // Throws UserError(69) that names the file, the loader's error and, as `advice`, what to install.
  LoadedModule(const char* file_name, const char* advice, int more_dlopen_flags = 0);

  const std::string& path() const { return path_; }
  // Throws InternalError when the module has no such function.
  template <class Function>
  Function function(const char* name) const {
    return reinterpret_cast<Function>(symbol(name));
  }
  // The table that the module's function `extern "C" const Table* name()` returns.
  template <class Table>
  const Table& table(const char* name) const {
    return *function<const Table* (*)()>(name)();
  }

 private:
  void* symbol(const char* name) const;

  std::string path_;
  void* handle_;
};

// The directory of a library that this process has loaded, such as "libcudart.so.13"; empty: it has not. Any thread.
std::string directory_of_loaded_library(const char* file_name);

}  // namespace dslaunch
