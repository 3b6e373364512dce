#include "launch/stacks/stack_tool.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <optional>
#include <variant>
#include <vector>

#include "base/environment.hpp"
#include "base/format.hpp"
#include "base/printable.hpp"
#include "base/small_file.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "spawn/process.hpp"
#include "spawn/program_path.hpp"

namespace dslaunch::launch {
namespace {

constexpr size_t kMaxOutput = 4U << 20;

struct ToolRun {
  std::string out, err;
  bool ended = false;  // before the deadline
};

// False at end of file.
bool take(UniqueFd& fd, std::string& to) {
  char buffer[16384];
  const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
  if (got > 0 && to.size() < kMaxOutput) to.append(buffer, static_cast<size_t>(got));
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return true;
  fd.reset();
  return false;
}

ToolRun run_tool(const std::vector<std::string>& argv, Deadline deadline) {
  ToolRun run;
  auto env = environment_of_this_process();
  env.erase("DEBUGINFOD_URLS");  // gdb would fetch symbols from the network
  auto started = spawn::start_process({.argv = argv, .env = std::move(env), .cwd = {}});
  if (const auto* cause = std::get_if<spawn::ExitCause>(&started)) {
    run.err = cause->hint;
    run.ended = true;
    return run;
  }
  auto& process = std::get<spawn::Process>(started);
  while ((process.out.valid() || process.err.valid()) && !deadline.passed()) {
    PollSet polls;
    const size_t out = polls.add(process.out.get(), POLLIN), err = polls.add(process.err.get(), POLLIN);
    polls.wait(deadline);
    if (polls.ready(out)) take(process.out, run.out);
    if (polls.ready(err)) take(process.err, run.err);
  }
  run.ended = !process.out.valid() && !process.err.valid();
  if (!run.ended) ::kill(-process.pid, SIGKILL);
  while (::waitpid(process.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return run;
}

std::string program_of(pid_t pid) {
  std::error_code unknown;
  return std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), unknown).string();
}

// Next to the process's own program (a virtual environment), then in PATH.
std::optional<std::string> find_tool(const std::string& name, const std::string& beside) {
  const char* path = std::getenv("PATH");
  auto candidates = spawn::program_candidates(name, path == nullptr ? "/usr/bin:/bin" : path);
  if (const size_t slash = beside.rfind('/'); slash != std::string::npos) {
    candidates.insert(candidates.begin(), beside.substr(0, slash + 1) + name);
  }
  const auto found = std::find_if(candidates.begin(), candidates.end(), [](const std::string& file) {
    return std::filesystem::is_regular_file(file) && ::access(file.c_str(), X_OK) == 0;
  });
  return found == candidates.end() ? std::nullopt : std::optional(*found);
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return printable(text.substr(text.rfind('\n') + 1));
}

// The line with the error, or the last line.
std::string reason_in(const ToolRun& run) {
  for (const std::string& text : {run.err, run.out}) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      const std::string line = text.substr(at, end - at);
      if (line.find("ermi") != std::string::npos && line.find("ptrace") != std::string::npos) return printable(line);
      if (line.find("ermission denied") != std::string::npos) return printable(line);
      at = end + 1;
    }
  }
  return last_line(run.err.empty() ? run.out : run.err);
}

std::string scope_text() {
  const auto scope = read_whole_file("/proc/sys/kernel/yama/ptrace_scope").value_or("0");
  return scope.starts_with('0') || ::geteuid() == 0
             ? ""
             : fmt::format(" (kernel.yama.ptrace_scope is {}: only root may inspect processes)", scope[0]);
}

std::string failure_of(const std::string& tool, const ToolRun& run, const std::string& what_is_shown) {
  if (!run.ended) return fmt::format("{} timed out; {}", tool, what_is_shown);
  return fmt::format("{} failed: {}{}; {}", tool, reason_in(run), scope_text(), what_is_shown);
}

ToolStacks by_gdb(pid_t pid, Deadline deadline) {
  const auto gdb = find_tool("gdb", "");
  if (!gdb) return {{}, {}, "gdb is not installed on this host; showing the kernel's view"};
  const ToolRun run =
      run_tool({*gdb, "-nx", "-batch", "-iex", "set pagination off", "-iex", "set auto-load off", "-iex",
                "set print frame-arguments presence", "-p", std::to_string(pid), "-ex", "thread apply all bt 64"},
               deadline);
  auto text = threads_in_gdb_output(run.out);
  if (run.ended && !text.empty()) return {"gdb", std::move(text), {}};
  return {{}, {}, failure_of("gdb", run, "showing the kernel's view")};
}

}  // namespace

std::string threads_in_gdb_output(const std::string& output) {
  std::string text;
  bool in_thread = false;
  for (size_t at = 0; at < output.size();) {
    const size_t end = std::min(output.find('\n', at), output.size());
    const std::string line = output.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("Thread ") && line.find("(Thread 0x") != std::string::npos) in_thread = true;
    if (line.starts_with("[Inferior")) in_thread = false;
    if (in_thread && !line.empty()) text += line + "\n";
  }
  return text.find("\n#0 ") == std::string::npos ? std::string() : text;
}

ToolStacks tool_stacks(pid_t pid, Deadline deadline) {
  const std::string program = program_of(pid);
  const bool is_python = program.substr(program.rfind('/') + 1).starts_with("python");
  std::string note;
  if (is_python) {
    if (const auto py_spy = find_tool("py-spy", program)) {
      const ToolRun run = run_tool({*py_spy, "dump", "--pid", std::to_string(pid)}, deadline);
      if (run.ended && run.out.find("Thread ") != std::string::npos) return {"py-spy", run.out, {}};
      note = failure_of("py-spy", run, "trying gdb");
    } else {
      note = "py-spy, which shows Python functions, is not installed on this host";
    }
  }
  ToolStacks stacks = by_gdb(pid, deadline);
  if (!note.empty()) stacks.note = stacks.note.empty() ? note : note + "; " + stacks.note;
  return stacks;
}

}  // namespace dslaunch::launch
