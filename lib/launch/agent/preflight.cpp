#include "launch/agent/preflight.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/byte_fields.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"
#include "launch/plan/zip_file.hpp"
#include "launch/process/elf_section.hpp"
#include "spawn/process.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// The worker's libraries may be loaded over a slow network.
constexpr auto kVersionTime = 15000ms;
constexpr const char* kVersionSection = ".dslaunch.version";  // apps/worker/command_line.cpp
constexpr const char* kFix = "install the same dslaunch on that host, give --remote_path DIR, or let --push copy it";

std::string read_until_end(const UniqueFd& fd, Deadline deadline) {
  std::string text;
  char buffer[4096];
  while (!deadline.passed()) {
    pollfd poll{fd.get(), POLLIN, 0};
    if (::poll(&poll, 1, deadline.poll_timeout()) <= 0) continue;
    ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got == 0) break;
    if (got > 0) text.append(buffer, got);
  }
  return text;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

[[noreturn]] void refuse_worker(const std::string& why) {
  bool without_torch = why.find("libtorch") != std::string::npos || why.find("libc10") != std::string::npos;
  throw UserError(ExitCode::kUnavailable,
                  fmt::format("{}; {}", why,
                              without_torch ? "it needs LibTorch on that host too: install it with scripts/setup, or "
                                              "set --env LD_LIBRARY_PATH=DIR to its torch/lib directory"
                                            : kFix));
}

struct ProgramOutput {
  std::string out, err;
};

ProgramOutput output_of(const std::vector<std::string>& argv, const std::map<std::string, std::string>& env) {
  auto started = spawn::start_process({.argv = argv, .env = env});
  if (const auto* cause = std::get_if<spawn::ExitCause>(&started)) refuse_worker(spawn::describe(*cause));
  auto& process = std::get<spawn::Process>(started);
  const Deadline deadline = Deadline::after(kVersionTime);
  ProgramOutput output;
  output.out = read_until_end(process.out, deadline);
  output.err = read_until_end(process.err, Deadline::after(500ms));
  // Its output is complete. A worker that does not end by itself would block this process forever.
  spawn::signal_group(process, SIGKILL);
  ::waitpid(process.pid, nullptr, 0);
  return output;
}

// By the worker's file and the dynamic loader: a few milliseconds, where --version waits for the initializers of
// LibTorch. False also for a script around the worker.
bool is_known_to_start(const std::string& expected, const std::string& worker, std::map<std::string, std::string> env) {
  if (elf_section_text(worker, kVersionSection) != expected) return false;
  env["LD_TRACE_LOADED_OBJECTS"] = "1";  // the loader lists the libraries instead of running the program: ld.so(8)
  const ProgramOutput libraries = output_of({worker}, env);
  return libraries.out.find("libtorch") != std::string::npos &&
         (libraries.out + libraries.err).find("not found") == std::string::npos;
}

void check_worker(const std::string& expected, const std::string& worker,
                  const std::map<std::string, std::string>& env) {
  if (is_known_to_start(expected, worker, env)) return;
  const ProgramOutput version = output_of({worker, "--version"}, env);
  const std::string& answer = version.out;
  if (first_line(answer) == expected) return;
  if (answer.empty()) {
    refuse_worker(fmt::format(
        "{} does not start on this host: {}", worker,
        version.err.empty() ? fmt::format("no answer within {} s", kVersionTime / 1s) : first_line(version.err)));
  }
  refuse_worker(
      fmt::format("{} is '{}' on this host, but '{}' on the launching host", worker, first_line(answer), expected));
}

[[noreturn]] void refuse_model(const std::string& path, const std::string& why) {
  throw UserError(ExitCode::kNoInput, fmt::format("cannot read the model {}: {}", path, why));
}

uint64_t size_of_model(const std::string& path) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  if (error) refuse_model(path, error.message());
  return bytes;
}

void check_model(const Preflight& preflight) {
  std::error_code error;
  uint64_t bytes = fs::file_size(preflight.model, error);
  if (error) {
    throw UserError(
        ExitCode::kNoInput,
        fmt::format("the model {} is missing on this host ({}): copy it to the same path, or put it on a file system "
                    "that all hosts share",
                    preflight.model, error.message()));
  }
  if (bytes == preflight.model_bytes && model_fingerprint(preflight.model) == preflight.model_fingerprint) return;
  throw UserError(ExitCode::kBadInput,
                  fmt::format("the model {} differs from the launching host's ({} bytes on this host, {} bytes there): "
                              "copy it again",
                              preflight.model, bytes, preflight.model_bytes));
}

}  // namespace

uint64_t model_fingerprint(const std::string& path) {
  const uint64_t bytes = size_of_model(path);
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse_model(path, describe_errno(errno));
  try {
    return fnv1a(read_zip_file_directory(file, bytes).bytes);  // enough: models are not forged against their own user
  } catch (const WireError& problem) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("{} {}; expected a file written by torch.jit.save", path, problem.what()));
  }
}

Preflight make_preflight(const std::string& model) {
  return {.worker_version = DSL_WORKER_VERSION,
          .model = model,
          .model_bytes = size_of_model(model),
          .model_fingerprint = model_fingerprint(model)};
}

void check_preflight(const Preflight& preflight, const std::string& worker,
                     const std::map<std::string, std::string>& env) {
  if (!preflight.worker_version.empty()) check_worker(preflight.worker_version, worker, env);
  if (!preflight.model.empty()) check_model(preflight);
}

}  // namespace dslaunch::launch
