#include "spawn/process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/mempolicy.h>
#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "base/small_file.hpp"
#include "spawn/inherited_descriptors.hpp"
#include "spawn/pipe.hpp"
#include "spawn/program_path.hpp"
#include "spawn/spawn_error.hpp"

namespace dslaunch::spawn {
namespace {

constexpr const char* kDefaultPath = "/usr/bin:/bin";
constexpr const char* kStream = "for a child's stream";

// The child sends this over the close-on-exec pipe when it could not become the program.
enum class Stage : int { kCpus, kMemory, kDescriptors, kDir, kExec };
struct ChildError {
  Stage stage;
  int error_number;
};

// The limit on descriptors that this process started with; empty if the kernel does not tell.
const std::optional<rlimit>& original_limit() {
  static const std::optional<rlimit> original = [] {
    rlimit limit{};
    return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? std::optional(limit) : std::nullopt;
  }();
  return original;
}

// A set of small numbers in the kernel's format: bits in words.
using BitWords = std::vector<unsigned long>;
constexpr size_t kBitsOfWord = 8 * sizeof(unsigned long);

BitWords bits_of(const std::vector<int>& numbers) {
  BitWords words;
  for (int number : numbers) {
    auto word = static_cast<size_t>(number) / kBitsOfWord;
    words.resize(std::max(words.size(), word + 1));
    words[word] |= 1UL << (static_cast<size_t>(number) % kBitsOfWord);
  }
  return words;
}

// Everything that the child uses between fork and exec, prepared before the fork: other threads may hold locks.
struct ChildImage {
  std::vector<std::string> candidates, env_text;
  std::vector<char*> argv, envp;
  const char* cwd = nullptr;
  int in = -1, out = -1, err = -1, inherited = -1, report = -1;
  bool die_with_thread = true;
  pid_t parent = -1;
  BitWords cpus, memory_nodes;  // empty: as inherited
  std::optional<rlimit> descriptor_limit;
};

ChildImage make_image(const ProcessSpec& spec) {
  ChildImage image;
  auto path = spec.env.find("PATH");
  image.candidates = program_candidates(spec.argv[0], path == spec.env.end() ? kDefaultPath : path->second);
  for (const auto& [name, value] : spec.env) image.env_text.push_back(fmt::format("{}={}", name, value));
  for (const auto& word : spec.argv) image.argv.push_back(const_cast<char*>(word.c_str()));
  image.argv.push_back(nullptr);
  for (auto& text : image.env_text) image.envp.push_back(text.data());
  image.envp.push_back(nullptr);
  image.cwd = spec.cwd.empty() ? nullptr : spec.cwd.c_str();
  image.inherited = spec.inherited;
  image.cpus = bits_of(spec.cpus);
  if (spec.memory_node) image.memory_nodes = bits_of({*spec.memory_node});
  image.die_with_thread = spec.die_with_thread;
  image.parent = ::getpid();
  image.descriptor_limit = original_limit();
  return image;
}

[[noreturn]] void give_up(const ChildImage& image, Stage stage, int error_number) {
  ChildError error{stage, error_number};
  [[maybe_unused]] auto written = ::write(image.report, &error, sizeof error);
  ::_exit(127);
}

void restore_signals() {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// The first candidate that executes wins; otherwise returns the most informative error: found but not executable takes
// precedence over not found.
int try_candidates(const ChildImage& image) {
  int telling = ENOENT;
  for (const auto& candidate : image.candidates) {
    ::execve(candidate.c_str(), image.argv.data(), image.envp.data());
    if (errno != ENOENT && errno != ENOTDIR) telling = errno;
    if (errno == ENOEXEC || errno == E2BIG || errno == ENOMEM) break;
  }
  return telling;
}

// Both settings survive exec. Plain system calls: glibc does not guarantee its own wrappers in a forked child.
void bind(const ChildImage& image) {
  const auto& cpus = image.cpus;
  if (!cpus.empty() && ::syscall(SYS_sched_setaffinity, 0, cpus.size() * sizeof cpus[0], cpus.data()) != 0) {
    give_up(image, Stage::kCpus, errno);
  }
  const auto& nodes = image.memory_nodes;
  // The kernel uses one bit less than it is told.
  if (!nodes.empty() && ::syscall(SYS_set_mempolicy, MPOL_BIND, nodes.data(), nodes.size() * kBitsOfWord + 1) != 0) {
    give_up(image, Stage::kMemory, errno);
  }
}

// Runs in the child: only async-signal-safe calls.
[[noreturn]] void become_program(const ChildImage& image) {
  if (image.die_with_thread) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != image.parent) ::_exit(127);  // the parent died before the line above took effect
  ::setsid();
  restore_signals();
  bind(image);
  ::dup2(image.in, STDIN_FILENO);
  ::dup2(image.out, STDOUT_FILENO);
  ::dup2(image.err, STDERR_FILENO);
  if (const int error = close_descriptors_on_exec(); error != 0) give_up(image, Stage::kDescriptors, error);
  if (image.descriptor_limit) ::setrlimit(RLIMIT_NOFILE, &*image.descriptor_limit);
  if (image.inherited >= 0) ::fcntl(image.inherited, F_SETFD, 0);
  if (image.cwd != nullptr && ::chdir(image.cwd) != 0) give_up(image, Stage::kDir, errno);
  give_up(image, Stage::kExec, try_candidates(image));
}

ExitCause not_started(int code, std::string hint) {
  return ExitCause{.kind = ExitCause::Kind::kNotStarted, .number = code, .hint = std::move(hint)};
}

ExitCause explain_binding_failure(const ChildError& error, const ProcessSpec& spec) {
  std::string what = error.stage == Stage::kCpus ? fmt::format("the CPUs {}", fmt::join(spec.cpus, ","))
                                                 : fmt::format("memory of NUMA node {}", spec.memory_node.value_or(-1));
  return not_started(to_int(ExitCode::kUnavailable),
                     fmt::format("the kernel rejects {}: {} (the cgroup's cpuset may not contain them)", what,
                                 describe_errno(error.error_number)));
}

std::string seen_from_cwd(const ProcessSpec& spec, const std::string& path) {
  return path.starts_with("/") || spec.cwd.empty() ? path : spec.cwd + "/" + path;
}

// The first file with this name, resolved from the process's working directory; empty when there is none.
std::string found_program(const ProcessSpec& spec) {
  auto path = spec.env.find("PATH");
  std::string dirs = path == spec.env.end() ? kDefaultPath : path->second;
  for (const std::string& name : program_candidates(spec.argv[0], dirs)) {
    const std::string candidate = seen_from_cwd(spec, name);
    if (::access(candidate.c_str(), F_OK) == 0) return candidate;
  }
  return {};
}

// If the kernel rejects the arguments as too long, a single variable is often the cause.
std::string largest_word(const ProcessSpec& spec) {
  std::string what = "the program's name";
  size_t largest = spec.argv[0].size(), all = 0;
  auto take = [&](size_t num_bytes, const std::string& name) {
    all += num_bytes + 1;
    if (num_bytes <= largest) return;
    largest = num_bytes;
    what = name;
  };
  for (size_t i = 0; i < spec.argv.size(); ++i) take(spec.argv[i].size(), fmt::format("argument {}", i));
  for (const auto& [name, value] : spec.env) take(name.size() + 1 + value.size(), "the variable " + name);
  return fmt::format(
      "{} has {} bytes, of {} in all arguments and variables: Linux accepts 131071 for one, and a quarter of ulimit -s "
      "for all",
      what, largest, all);
}

ExitCause explain(const ChildError& error, const ProcessSpec& spec) {
  if (error.stage == Stage::kCpus || error.stage == Stage::kMemory) return explain_binding_failure(error, spec);
  if (error.stage == Stage::kDescriptors) {
    return not_started(to_int(ExitCode::kUnavailable),
                       fmt::format("cannot list the open descriptors: /proc/self/fd: {}; mount /proc, which "
                                   "dslaunch needs on Linux before 5.11",
                                   describe_errno(error.error_number)));
  }
  if (error.stage == Stage::kDir) {
    return not_started(to_int(ExitCode::kNotExecutable), fmt::format("cannot change to the directory {}: {}", spec.cwd,
                                                                     describe_errno(error.error_number)));
  }
  const std::string& name = spec.argv[0];
  const std::string file = found_program(spec);
  bool searched = name.find('/') == std::string::npos;
  if (error.error_number == ENOENT) {
    if (const Result<> interpreter = check_interpreter(file); !interpreter.ok()) {
      return not_started(to_int(ExitCode::kNotFound),
                         fmt::format("cannot start program '{}': {}", name, interpreter.error()));
    }
    return not_started(
        to_int(ExitCode::kNotFound),
        searched ? fmt::format("program '{}' is not in any directory of PATH", name)
                 : fmt::format("program '{}' does not exist{}", name, did_you_mean_file(seen_from_cwd(spec, name))));
  }
  std::string reason = describe_errno(error.error_number);
  if (error.error_number == E2BIG) reason += " (" + largest_word(spec) + ")";
  if (error.error_number == ENOEXEC) reason += " (" + wrong_format(file) + ")";
  if (error.error_number == EACCES) reason += " (a directory, or not executable: chmod +x makes a file executable)";
  return not_started(to_int(ExitCode::kNotExecutable), fmt::format("cannot execute program '{}': {}", name, reason));
}

ExitCause no_further_process(int error_number) {
  return not_started(
      to_int(ExitCode::kUnavailable),
      fmt::format("fork: {}: a limit of this user (ulimit -u), of memory, or of the container (pids.max)",
                  describe_errno(error_number)));
}

int open_null(UniqueFd& null) {
  null.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null.valid()) throw SystemError("open", "/dev/null");
  return null.get();
}

// Makes our end non-blocking. Returns the child's end.
int open_pipe(Pipe& pipe) {
  pipe = make_pipe(kStream);
  if (::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK) != 0) throw SystemError("fcntl", "O_NONBLOCK on a child's stream");
  return pipe.write.get();
}

}  // namespace

void raise_descriptor_limit() {
  if (!original_limit()) return;
  rlimit limit = *original_limit();
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::variant<Process, ExitCause> start_process(const ProcessSpec& spec) {
  DSL_CHECK(!spec.argv.empty(), "a process needs a program");
  if (spec.argv[0].empty()) return not_started(to_int(ExitCode::kNotFound), "the program's name is empty");
  Pipe report, out, err;
  UniqueFd null;
  ChildImage image = make_image(spec);
  try {
    report = make_pipe(kStream);
    image.in = spec.in >= 0 ? spec.in : open_null(null);
    image.out = spec.out >= 0 ? spec.out : open_pipe(out);
    image.err = spec.err >= 0 ? spec.err : open_pipe(err);
  } catch (const SystemError& error) {
    return not_started(to_int(ExitCode::kUnavailable), error.what());
  }
  image.report = report.write.get();

  pid_t pid = ::fork();
  if (pid < 0) return no_further_process(errno);
  if (pid == 0) become_program(image);

  report.write.reset();
  ChildError error;
  ssize_t got;
  while ((got = ::read(report.read.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got == sizeof error) {
    ::waitpid(pid, nullptr, 0);
    return explain(error, spec);
  }
  Process process;
  process.pid = pid;
  process.out = std::move(out.read);
  process.err = std::move(err.read);
  return process;
}

// /proc still knows the cgroups of a zombie.
static std::string cgroups_of(pid_t pid) {
  return read_whole_file(fmt::format("/proc/{}/cgroup", pid)).value_or("");
}

std::optional<EndedChild> reap_any() {
  siginfo_t ended{};
  int result;
  while ((result = ::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT)) < 0 && errno == EINTR) {
  }
  if (result != 0 || ended.si_pid <= 0) return std::nullopt;
  std::string cgroups = cgroups_of(ended.si_pid);
  int status = 0;
  while (::waitpid(ended.si_pid, &status, 0) < 0 && errno == EINTR) {
  }
  return EndedChild{ended.si_pid, decode_wait_status(status), std::move(cgroups)};
}

void signal_group(const Process& process, int signal) {
  ::kill(-process.pid, signal);
}

}  // namespace dslaunch::spawn
