#include "ports/process_info.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "unit/ports/holder_process.hpp"

using namespace dslaunch;
using namespace dslaunch::ports;

TEST_CASE("a process is read even when its name holds parentheses and blanks", "[ports][process_info]") {
  HolderProcess odd([] {
    prctl(PR_SET_NAME, "a) S 1 (b");
    return uint16_t{0};
  });
  REQUIRE(kill(odd.pid(), SIGSTOP) == 0);
  REQUIRE(waitpid(odd.pid(), nullptr, WUNTRACED) == odd.pid());
  auto info = read_process(odd.pid());
  REQUIRE(info);
  CHECK(info->uid == getuid());
  CHECK(info->state == 'T');
  REQUIRE(info->age);
  CHECK(info->age->count() < 60);
  CHECK(info->command.find("test_ports") != std::string::npos);
}

TEST_CASE("a missing process gives nullopt", "[ports][process_info]") {
  pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  CHECK_FALSE(read_process(child));
}

TEST_CASE("the owners of a socket are all processes that have it open", "[ports][process_info]") {
  uint16_t port = 0;
  UniqueFd listener = listen_on("127.0.0.1", &port);
  HolderProcess child([] { return uint16_t{0}; });
  struct stat info;
  REQUIRE(fstat(listener.get(), &info) == 0);
  auto owners = owners_of_sockets({info.st_ino});
  REQUIRE(owners.size() == 1);
  std::vector<pid_t> expected{getpid(), child.pid()};
  std::sort(expected.begin(), expected.end());
  CHECK(owners[info.st_ino] == expected);
}

TEST_CASE("a user without a name is shown by number", "[ports][process_info]") {
  CHECK(user_name(0) == "root");
  CHECK(user_name(4123456789u) == "4123456789");
}

TEST_CASE("distinguishes a process from a later one with the same pid", "[ports][process_info]") {
  HolderProcess child([] { return uint16_t{0}; });
  auto info = read_process(child.pid());
  REQUIRE(info);
  CHECK(info->identity.pid == child.pid());
  CHECK(exists(info->identity));
  ProcessIdentity later{child.pid(), info->identity.start_ticks + 1};
  CHECK_FALSE(exists(later));
  child.end();
  CHECK_FALSE(exists(info->identity));
}

TEST_CASE("parent, group, session, signals and users of a process", "[ports][process_info]") {
  HolderProcess child([] {
    setsid();
    signal(SIGHUP, SIG_IGN);
    return uint16_t{0};
  });
  auto info = read_process(child.pid());
  REQUIRE(info);
  CHECK(info->parent == getpid());
  CHECK(info->session == child.pid());
  CHECK(info->group == child.pid());
  CHECK(info->ignores_sighup);
  HolderProcess other([] {
    signal(SIGHUP, SIG_DFL);
    return uint16_t{0};
  });
  CHECK_FALSE(read_process(other.pid())->ignores_sighup);
  CHECK(info->real_uid == getuid());
  CHECK(info->effective_uid == geteuid());
  CHECK(info->readable);
  auto all = all_processes();
  CHECK(std::find(all.begin(), all.end(), child.pid()) != all.end());
}

namespace {

// Of a program with these arguments and this environment.
LauncherSign sign_of(std::vector<std::string> arguments, const std::string& variable) {
  int hold[2], ready[2];
  REQUIRE((pipe(hold) == 0 && pipe(ready) == 0));
  pid_t child = fork();
  if (child == 0) {
    dup2(hold[0], STDIN_FILENO);
    dup2(ready[1], STDOUT_FILENO);
    close(hold[1]);
    std::vector<char*> argv{const_cast<char*>("sh"), const_cast<char*>("-c"), const_cast<char*>("echo up; read line")};
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    std::vector<char*> env{const_cast<char*>(variable.c_str()), nullptr};
    execve("/bin/sh", argv.data(), env.data());
    _exit(127);
  }
  close(hold[0]);
  close(ready[1]);
  char byte;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  close(ready[0]);
  auto info = read_process(child);
  close(hold[1]);
  waitpid(child, nullptr, 0);
  return info ? info->launcher_sign : LauncherSign::kNone;
}

}  // namespace

TEST_CASE("recognizes a launcher's signs in environment and arguments", "[ports][process_info]") {
  CHECK(sign_of({}, "TORCHELASTIC_RUN_ID=none") == LauncherSign::kElasticRunId);
  CHECK(sign_of({}, "CROSS_RANK=0") == LauncherSign::kCrossRank);
  CHECK(sign_of({"--", "--local_rank=0"}, "A=b") == LauncherSign::kLocalRankArgument);
  CHECK(sign_of({"--", "--local_rank", "0"}, "A=b") == LauncherSign::kLocalRankArgument);
  CHECK(sign_of({"--", "--local-rank=0"}, "A=b") == LauncherSign::kLocalRankArgument);
  // People export and write these by hand.
  CHECK(sign_of({"--", "--local_ranks=2", "local_rank=0"}, "RANK=0") == LauncherSign::kNone);
  CHECK(sign_of({}, "LOCAL_RANK=0") == LauncherSign::kNone);
  CHECK(sign_of({}, "TORCHELASTIC_RUN_IDS=0") == LauncherSign::kNone);
}
