// Modules that the program opens when it needs them: libdslaunch_gloo.so, libdslaunch_cuda.so. They lie in
// $DSLAUNCH_MODULE_DIR, else in lib/dslaunch beside the program's bin. Opened once, never closed. Any thread.
#pragma once
#include <string>

namespace dslaunch::comm {

class Module {
 public:
  // Throws UserError(69) that names the file, what the loader said and what to install.
  static const Module& gloo();
  static const Module& cuda();

  const std::string& path() const { return path_; }
  // Throws InternalError when the module has no such symbol.
  void* symbol(const char* name) const;
  // What the module's function `extern "C" const Table* name()` gives out.
  template <class Table>
  const Table& table(const char* name) const {
    return *reinterpret_cast<const Table* (*)()>(symbol(name))();
  }

 private:
  Module(const char* file_name, int dlopen_flags, const char* advice);

  std::string path_;
  void* handle_ = nullptr;
};

std::string module_directory();

}  // namespace dslaunch::comm
