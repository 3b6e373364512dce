// Machine code for sources, compiled once: in memory for this process, on disk for the next. Any thread; two threads
// that ask for the same code at the same time may both compile it, and both get it.
#pragma once
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.hpp"
#include "runtime/generated_kernels/kernel_files.hpp"

namespace dslaunch::runtime::generated_kernels {

class KernelLibrary {
 public:
  // `directory`: for the files, kernel_directory() for the user's; empty: in memory only. Its end waits for threads
  // that compile.
  explicit KernelLibrary(std::string directory);

  struct Counts {
    int compiled = 0, read = 0;                         // from the files
    double compiling_seconds = 0, reading_seconds = 0;  // summed over the threads that did it
  };

  using Code = Result<std::shared_ptr<const std::string>>;
  // A cubin for `architecture` ("sm_90"). The failure says why there is none. A directory that cannot be written is
  // said once and does not fail.
  Code code(const std::string& source, const std::string& architecture);
  // Begins on a thread of its own what code() will be asked for; does nothing while many others are under way.
  void prepare(const std::string& source, const std::string& architecture);
  Counts counts() const;

 private:
  Code make(const std::string& key, const std::string& source, const std::string& architecture);

  const std::string directory_;
  const KernelFiles files_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const std::string>> known_;
  Counts counts_;
  bool said_unwritable_ = false;
  std::map<std::string, std::shared_future<Code>> pending_;  // last: its threads use the others
};

}  // namespace dslaunch::runtime::generated_kernels
