#include "spawn/exit_diagnostics.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "spawn/output_hint.hpp"
#include "spawn/process.hpp"
#include "spawn/spawn_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch::spawn;
using Catch::Contains;

namespace {

ExitCause killed_by(int signal) {
  return {.kind = ExitCause::Kind::kSignaled, .number = signal, .core_dumped = false, .hint = {}};
}

ExitCause exited(int code) {
  return {.kind = ExitCause::Kind::kExited, .number = code, .core_dumped = false, .hint = {}};
}

}  // namespace

TEST_CASE("a real segmentation fault is explained", "[spawn][exit_diagnostics]") {
  ExitDiagnostics explainer;
  pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGSEGV, SIG_DFL);
    void* locked = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *static_cast<volatile int*>(locked) = 1;
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  CHECK_THAT(explainer.explain(decode_wait_status(status), pid, ""), Contains("invalid memory"));
}

TEST_CASE("signals that others send are not explained, nor are exit codes", "[spawn][exit_diagnostics]") {
  ExitDiagnostics explainer;
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGKILL}) CHECK(explainer.explain(killed_by(signal), 1, "").empty());
  CHECK(explainer.explain(exited(139), 1, "").empty());
  for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGPIPE, SIGXCPU, SIGXFSZ, SIGSYS}) {
    CHECK_FALSE(meaning_of_signal(signal).empty());
  }
}

TEST_CASE("the kernel's lines are matched by pid", "[spawn][kernel_log]") {
  const std::string oom =
      "Memory cgroup out of memory: Killed process 4711 (python) total-vm:9kB, anon-rss:1024kB, file-rss:0kB";
  CHECK(death_in_kernel_line(oom, 4711) ==
        "the kernel killed it because its memory cgroup (the limit of the container or job) was full, it used 1024kB");
  CHECK(death_in_kernel_line(oom, 471).empty());
  CHECK_THAT(death_in_kernel_line("Out of memory: Killed process 7 (a) total-vm:1kB, anon-rss:2kB,", 7),
             Contains("the machine was out of memory"));
  const std::string segfault = "python[12]: segfault at 8 ip 00007f sp 00007e error 6 in libfoo.so[7f+1000]";
  CHECK(death_in_kernel_line(segfault, 12) ==
        "the kernel says: segfault at 8 ip 00007f sp 00007e error 6 in libfoo.so[7f+1000]");
  CHECK(death_in_kernel_line(segfault, 2).empty());
  CHECK_THAT(death_in_kernel_line("traps: a[12] trap invalid opcode ip:1 sp:2 error:0 in a[4+1]", 12),
             Contains("trap invalid opcode"));
  CHECK(death_in_kernel_line("systemd[12]: Started something", 12).empty());
}

TEST_CASE("reports a full or small /dev/shm", "[spawn][exit_diagnostics]") {
  constexpr uint64_t kMebi = 1U << 20;
  CHECK_THAT(shared_memory_hint(1024 * kMebi, 0), Contains("is full (0 of 1024 MiB left)"));
  CHECK_THAT(shared_memory_hint(1024 * kMebi, 10 * kMebi), Contains("is full"));
  CHECK_THAT(shared_memory_hint(64 * kMebi, 60 * kMebi), Contains("only 64 MiB"));
  CHECK(shared_memory_hint(16384 * kMebi, 8192 * kMebi).empty());
}

TEST_CASE("an interpreter that is missing is named", "[spawn][spawn_error]") {
  dslaunch::test::TempDir dir;
  CHECK_THAT(check_interpreter(dir.write("a", "#!/no/such/python -u\n")).error(), Contains("/no/such/python,"));
  CHECK_THAT(check_interpreter(dir.write("b", "#! /no/such/python\n")).error(), Contains("/no/such/python,"));
  CHECK_THAT(check_interpreter(dir.write("c", "#!/bin/sh\r\n")).error(), Contains("Windows") && Contains("sed -i"));
  CHECK(check_interpreter(dir.write("d", "#!/bin/sh\n")).ok());
  CHECK(check_interpreter(dir.write("e", "no script")).ok());
  CHECK(check_interpreter("/bin/sh").ok());
  CHECK(check_interpreter("/no/such/file").ok());
}

TEST_CASE("distinguishes binaries for another loader or CPU", "[spawn][spawn_error]") {
  dslaunch::test::TempDir dir;
  std::ifstream shell("/bin/sh", std::ios::binary);
  std::string binary{std::istreambuf_iterator<char>(shell), {}};
  size_t loader = binary.find("/lib64/ld-linux");
  if (loader == std::string::npos) return;  // another kind of system
  std::string musl = binary;
  musl.replace(loader, 15, "/lib64/ld-odd-x");
  CHECK_THAT(check_interpreter(dir.write("musl", musl)).error(), Contains("dynamic loader /lib64/ld-odd-x"));
  std::string arm = binary;
  arm[18] = static_cast<char>(183);  // e_machine: EM_AARCH64
  CHECK_THAT(wrong_format(dir.write("arm", arm)), Contains("built for aarch64"));
  CHECK_THAT(wrong_format(dir.write("cut", binary.substr(0, 100))), Contains("truncated"));
  CHECK(wrong_format(dir.write("empty", "")) == "it is empty");
  CHECK_THAT(wrong_format(dir.write("text", "echo hello\n")), Contains("#! line"));
}

TEST_CASE("start_process says what keeps a program from starting", "[spawn][spawn_error]") {
  dslaunch::test::TempDir dir;
  auto refused = [&](const std::string& content) {
    auto file = dir.write("program", content);
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    auto result = start_process({{"program"}, {{"PATH", "/usr/bin:" + dir.path()}}, ""});
    REQUIRE(std::holds_alternative<ExitCause>(result));
    return std::get<ExitCause>(result);
  };
  auto cause = refused("#!/no/such/python\n");
  CHECK(cause.shell_code() == 127);
  CHECK_THAT(cause.hint, Contains("cannot start program") && Contains("/no/such/python"));
  CHECK(refused("").shell_code() == 126);
}

TEST_CASE("finds a missing library in the last output", "[spawn][output_hint]") {
  const std::string words =
      "train: error while loading shared libraries: libcudart.so.13: cannot open shared object file: No such file or "
      "directory";
  CHECK_THAT(hint_in_output_tail(exited(127), words), Contains("libcudart.so.13") && Contains("LD_LIBRARY_PATH"));
  CHECK_THAT(hint_in_output_tail(exited(127),
                                 "dsworker: error while loading shared libraries: libtorch_cpu.so: cannot open "
                                 "shared object file: No such file or directory"),
             Contains("DSLAUNCH_TORCH_LIB"));
  CHECK_THAT(hint_in_output_tail(exited(127), "/usr/bin/env: 'python9': No such file or directory"),
             Contains("'python9'") && Contains("PATH"));
  CHECK_THAT(hint_in_output_tail(exited(127), "/usr/bin/env: \u2018python9\u2019: No such file"),
             Contains("'python9'"));
  CHECK(hint_in_output_tail(exited(1), words).empty());
  CHECK(hint_in_output_tail(exited(127), "sh: 1: foo: not found").empty());
  CHECK(hint_in_output_tail(killed_by(9), words).empty());
}
