#include "unfinished_files.hpp"

#include <unistd.h>

#include <csignal>

namespace dslaunch::worker {
namespace {

// Never destroyed: a signal may come at any time.
std::vector<std::string>* g_unfinished = nullptr;

// Reads only memory that no longer changes and calls only async-signal-safe functions.
void remove_and_end(int number) {
  for (const auto& path : *g_unfinished) {
    if (::unlink(path.c_str()) != 0) ::rmdir(path.c_str());
  }
  std::signal(number, SIG_DFL);
  std::raise(number);
}

}  // namespace

void remove_when_ended(std::vector<std::string> paths) {
  g_unfinished = new std::vector<std::string>(std::move(paths));
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    if (std::signal(number, remove_and_end) == SIG_IGN) std::signal(number, SIG_IGN);  // nohup, a background job
  }
}

}  // namespace dslaunch::worker
