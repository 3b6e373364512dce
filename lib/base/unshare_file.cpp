#include "base/unshare_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

namespace dslaunch {

void remove_symbolic_link(const std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) == 0 && S_ISLNK(found.st_mode)) ::unlink(path.c_str());
}

void unshare_file(const std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return;
  // Never a device or a pipe: these are opened as they are, or refused.
  if (S_ISLNK(found.st_mode) || (S_ISREG(found.st_mode) && found.st_nlink > 1)) ::unlink(path.c_str());
}

}  // namespace dslaunch
