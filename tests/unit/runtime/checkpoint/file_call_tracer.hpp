// Runs a child under ptrace and disturbs one of its system calls that change files: kills it there, or lets the call
// fail. The program under test knows nothing of it. x86-64 only (registers).
#pragma once
#if defined(__x86_64__) && defined(__linux__)
#define DSL_CAN_TRACE_FILE_CALLS 1
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

namespace dslaunch::test {

struct Disturbance {
  enum class Kind { kKill, kFail };
  Kind kind = Kind::kKill;
  int call = 0;   // which of the calls, from 0
  int error = 0;  // kFail: errno
};

struct TracedEnd {
  int calls = 0;         // that were seen
  bool reached = false;  // the disturbed call came
  bool killed = false;
  int code = -1;  // the child's exit code otherwise
};

namespace tracer {

inline bool changes_files(const user_regs_struct& registers, Disturbance::Kind kind) {
  switch (registers.orig_rax) {
    case SYS_open:
      return (registers.rsi & O_CREAT) != 0;
    case SYS_openat:
      return (registers.rdx & O_CREAT) != 0;
    case SYS_write:
      return registers.rdi > 2;  // not the log
    case SYS_pwrite64:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_mkdir:
    case SYS_mkdirat:
    case SYS_rename:
    case SYS_renameat:
    case SYS_renameat2:
      return true;
    case SYS_unlink:
    case SYS_unlinkat:
    case SYS_rmdir:
      return kind == Disturbance::Kind::kKill;  // no disk is too full to remove a file
    default:
      return false;
  }
}

inline void check(long result, const char* what) {
  if (result < 0) throw std::runtime_error(std::string(what) + ": errno " + std::to_string(errno));
}

inline user_regs_struct registers_of(pid_t thread) {
  user_regs_struct registers{};
  check(::ptrace(PTRACE_GETREGS, thread, nullptr, &registers), "PTRACE_GETREGS");
  return registers;
}

}  // namespace tracer

// `work` runs in a fork and gives its exit code; it may start threads.
inline TracedEnd run_disturbed(const std::function<int()>& work, const Disturbance& disturbance) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    ::_exit(work());
  }
  int status = 0;
  tracer::check(::waitpid(child, &status, 0), "waitpid");
  tracer::check(
      ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL),
      "PTRACE_SETOPTIONS");
  tracer::check(::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr), "PTRACE_SYSCALL");

  TracedEnd end;
  std::map<pid_t, bool> inside;   // a thread is between entry and exit of a call
  std::map<pid_t, bool> failing;  // and that call is to fail
  for (;;) {
    const pid_t thread = ::waitpid(-1, &status, __WALL);
    tracer::check(thread, "waitpid");
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (thread != child) continue;
      end.killed = WIFSIGNALED(status);
      if (WIFEXITED(status)) end.code = WEXITSTATUS(status);
      return end;
    }
    int signal = 0;
    if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
      auto registers = tracer::registers_of(thread);
      inside[thread] = !inside[thread];
      if (inside[thread] && tracer::changes_files(registers, disturbance.kind) && end.calls++ == disturbance.call) {
        end.reached = true;
        if (disturbance.kind == Disturbance::Kind::kKill) {
          ::kill(child, SIGKILL);
          continue;
        }
        registers.orig_rax = static_cast<decltype(registers.orig_rax)>(-1);  // no such call: nothing happens
        tracer::check(::ptrace(PTRACE_SETREGS, thread, nullptr, &registers), "PTRACE_SETREGS");
        failing[thread] = true;
      } else if (!inside[thread] && failing[thread]) {
        registers.rax = static_cast<decltype(registers.rax)>(-disturbance.error);
        tracer::check(::ptrace(PTRACE_SETREGS, thread, nullptr, &registers), "PTRACE_SETREGS");
        failing[thread] = false;
      }
    } else if (WSTOPSIG(status) != SIGTRAP && WSTOPSIG(status) != SIGSTOP) {
      signal = WSTOPSIG(status);
    }
    ::ptrace(PTRACE_SYSCALL, thread, nullptr, signal);  // fails only for a thread that is gone
  }
}

}  // namespace dslaunch::test
#endif
