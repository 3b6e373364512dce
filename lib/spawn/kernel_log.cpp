#include "spawn/kernel_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/format.hpp"
#include "ports/namespaces.hpp"

namespace dslaunch::spawn {
namespace {

constexpr size_t kMaxLines = 1000;

// Record format: "priority,number,time,flags;message", then lines of properties.
std::string message_of(const std::string& record) {
  size_t begin = record.find(';');
  if (begin == std::string::npos) return {};
  return record.substr(begin + 1, record.find('\n', begin) - begin - 1);
}

std::string after(const std::string& line, const std::string& words) {
  size_t at = line.find(words);
  return at == std::string::npos ? std::string() : line.substr(at + words.size());
}

// "Memory cgroup out of memory: Killed process 12 (python) total-vm:9kB, anon-rss:4kB, ..."
std::string out_of_memory(const std::string& line, pid_t pid) {
  if (line.find(fmt::format("Killed process {} (", pid)) == std::string::npos) return {};
  const char* where = line.find("Memory cgroup") != std::string::npos
                          ? "its memory cgroup (the limit of the container or job) was full"
                          : "the machine was out of memory";
  std::string resident = after(line, "anon-rss:");
  std::string used = resident.empty() ? std::string() : ", it used " + resident.substr(0, resident.find_first_of(", "));
  return fmt::format("the kernel killed it because {}{}", where, used);
}

}  // namespace

KernelLog::KernelLog() {
  if (!ports::is_in_first_pid_namespace()) return;
  log_ = UniqueFd(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (log_.valid()) ::lseek(log_.get(), 0, SEEK_END);
}

void KernelLog::read_new_lines() {
  char record[8192];
  while (log_.valid()) {
    ssize_t got = ::read(log_.get(), record, sizeof record);
    if (got < 0 && (errno == EPIPE || errno == EINTR)) continue;  // EPIPE: records were overwritten before the read
    if (got <= 0) return;
    lines_.push_back(message_of(std::string(record, static_cast<size_t>(got))));
    if (lines_.size() > kMaxLines) lines_.pop_front();
  }
}

std::string KernelLog::about(pid_t pid) {
  read_new_lines();
  for (auto line = lines_.rbegin(); line != lines_.rend(); ++line) {
    if (std::string text = death_in_kernel_line(*line, pid); !text.empty()) return text;
  }
  return {};
}

std::string death_in_kernel_line(const std::string& line, pid_t pid) {
  if (std::string text = out_of_memory(line, pid); !text.empty()) return text;
  // "python[12]: segfault at 8 ip 0000 sp 0000 error 4 in libfoo.so[7f00+1000]", "traps: python[12] trap invalid opcode
  // ip:0 sp:0 error:0 in libfoo.so[...]", "traps: python[12] general protection fault ..."
  std::string rest = after(line, fmt::format("[{}]", pid));
  if (rest.starts_with(":")) rest.erase(0, 1);
  if (rest.starts_with(" ")) rest.erase(0, 1);
  bool death = rest.starts_with("segfault") || rest.starts_with("trap ") || rest.starts_with("general protection");
  return death ? "the kernel says: " + rest : std::string();
}

}  // namespace dslaunch::spawn
