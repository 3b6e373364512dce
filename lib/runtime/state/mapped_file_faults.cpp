// A mapped file that is truncated has pages without storage: the kernel ends the process that reads them with SIGBUS.
// Before that, the handler here writes which file it was. Any thread.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>

#include "base/format.hpp"
#include "base/printable.hpp"
#include "runtime/state/mapped_file.hpp"

namespace dslaunch::runtime {

// The handler may run at any time, so ranges are never freed, and those that are not in use are used again.
struct FaultRange {
  std::atomic<const char*> begin{nullptr};  // null: not in use
  std::atomic<size_t> size{0};
  std::string line;
  FaultRange* next = nullptr;       // of all
  FaultRange* next_free = nullptr;  // of those not in use
};

namespace {

std::atomic<FaultRange*> g_all{nullptr};
FaultRange* g_free = nullptr;
std::mutex g_mutex;  // of changes

// Only calls that a signal handler may make.
void on_fault(int, siginfo_t* info, void*) {
  const auto* address = static_cast<const char*>(info->si_addr);
  for (const FaultRange* range = g_all; range != nullptr; range = range->next) {
    const char* begin = range->begin;
    if (begin == nullptr || address < begin || address >= begin + range->size) continue;
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, range->line.data(), range->line.size());
    break;
  }
}

}  // namespace

void report_mapped_file_faults() {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_RESETHAND;  // the access that is repeated on return ends the process
  ::sigaction(SIGBUS, &action, nullptr);
}

FaultRange* add_fault_range(const void* begin, size_t size, const std::string& file) {
  const std::lock_guard lock(g_mutex);
  FaultRange* range = g_free;
  if (range != nullptr) {
    g_free = range->next_free;
  } else {
    range = new FaultRange;
    range->next = g_all;
    g_all = range;
  }
  range->line = fmt::format(
      "error: reading a page of {} failed (SIGBUS): the file is shorter than when it was opened, or its file system "
      "does "
      "not answer; do not change files while a job reads them: write another file and rename it\n",
      printable(file));
  range->size = size;
  range->begin = static_cast<const char*>(begin);
  return range;
}

void remove_fault_range(FaultRange* range) {
  const std::lock_guard lock(g_mutex);
  range->begin = nullptr;
  range->next_free = g_free;
  g_free = range;
}

}  // namespace dslaunch::runtime
