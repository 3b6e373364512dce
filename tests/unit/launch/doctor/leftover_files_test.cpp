#include "launch/doctor/leftover_files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/unique_fd.hpp"
#include "launch/agent/error_files.hpp"
#include "launch/agent/job_files.hpp"
#include "launch/records/private_dir.hpp"
#include "support/set_env.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
namespace fs = std::filesystem;

namespace {

// The number of a process that is gone.
pid_t dead_pid() {
  pid_t pid = fork();
  if (pid == 0) _exit(0);
  waitpid(pid, nullptr, 0);
  return pid;
}

struct Folder : test::TempDir {
  fs::path old_file(const std::string& name, const std::string& text = "x") const { return aged(write(name, text)); }
  static fs::path aged(const fs::path& file) {
    timespec times[2] = {{time(nullptr) - 3600, 0}, {time(nullptr) - 3600, 0}};
    utimensat(AT_FDCWD, file.c_str(), times, 0);
    return file;
  }
};

std::vector<std::string> paths(const std::vector<Finding>& findings) {
  std::vector<std::string> all;
  for (const auto& finding : findings) all.push_back(finding.path);
  return all;
}

}  // namespace

TEST_CASE("shared memory of dead creators is left over", "[launch][doctor]") {
  Folder dir;
  auto torch = dir.old_file("torch_" + std::to_string(dead_pid()) + "_77_0");
  auto nccl = dir.old_file("nccl-AbCdEf");
  auto openmp = dir.old_file("__KMP_REGISTERED_LIB_" + std::to_string(dead_pid()) + "_0");
  dir.old_file("torch_" + std::to_string(getpid()) + "_77_0");  // its planner lives
  dir.old_file("somebody_elses");
  dir.write("nccl-young", "x");
  auto found = paths(leftover_shared_memory(dir.path()));
  std::sort(found.begin(), found.end());
  std::vector<std::string> expected{torch.string(), nccl.string(), openmp.string()};
  std::sort(expected.begin(), expected.end());
  CHECK(found == expected);
}

TEST_CASE("shared memory that a process has open or mapped is in use", "[launch][doctor]") {
  Folder dir;
  auto file = dir.old_file("nccl-AbCdEf", std::string(4096, 'x'));
  UniqueFd open(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  CHECK(leftover_shared_memory(dir.path()).empty());
  void* mapped = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, open.get(), 0);
  REQUIRE(mapped != MAP_FAILED);
  open.reset();
  CHECK(leftover_shared_memory(dir.path()).empty());
  munmap(mapped, 4096);
  CHECK(leftover_shared_memory(dir.path()).size() == 1);
}

TEST_CASE("pid files of dead launchers are left over", "[launch][doctor]") {
  Folder dir;
  auto dead = std::to_string(dead_pid());
  auto stale = dir.old_file(dead + ".deepspeed", dead);
  dir.old_file(std::to_string(getpid()) + ".deepspeed", dead);
  dir.old_file("1" + dead + "1.deepspeed", std::to_string(getpid()));  // the launcher inside lives
  dir.old_file(dead + ".deepspeed.txt");
  dir.old_file(".deepspeed");
  CHECK(paths(leftover_pid_files(dir.path())) == std::vector<std::string>{stale.string()});
}

TEST_CASE("a private directory is abandoned once its agent has exited", "[launch][doctor]") {
  Folder dir;
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  pid_t agent = fork();
  if (agent == 0) {
    setenv("TMPDIR", dir.path().c_str(), 1);
    ErrorFiles files("20260131-174502-4711-c0de");
    std::ofstream(files.path_of(0)) << "{}";
    JobFiles sent("20260131-174502-4711-c0de", {{"/far/ds.json", "{}"}});
    if (write(ready[1], "x", 1) != 1) _exit(1);
    pause();
  }
  char byte;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  for (const auto& entry : fs::directory_iterator(dir.path())) Folder::aged(entry.path());
  const std::string sockets = dir / "dslaunch-20260131-174502-4711-c0de-socket";
  fs::create_directory(sockets);
  dir.write("dslaunch-20260131-174502-4711-c0de-socket/control", "");
  Folder::aged(sockets);
  fs::create_directory(dir / "dslaunch-my-drafts");
  dir.write("dslaunch-my-drafts/01-intro.md", "a user's own");
  Folder::aged(dir / "dslaunch-my-drafts");
  auto nobody = [](const std::string&) { return false; };
  CHECK(leftover_private_dirs(dir.path(), nobody).empty());
  kill(agent, SIGKILL);
  waitpid(agent, nullptr, 0);
  auto a_supervisor = [](const std::string& job) { return job == "20260131-174502-4711-c0de"; };
  CHECK(leftover_private_dirs(dir.path(), a_supervisor).empty());
  auto found = leftover_private_dirs(dir.path(), nobody);
  REQUIRE(found.size() == 2);
  for (const auto& left : found) {
    CHECK(left.job_id == "20260131-174502-4711-c0de");
    CHECK(remove_leftover(left).ok());
    CHECK_FALSE(fs::exists(left.path));
  }
  close(ready[0]);
  close(ready[1]);
}

TEST_CASE("only private directories of dead agents are removed", "[launch][private_folder]") {
  Folder dir;
  test::SetEnv temporary("TMPDIR", dir.path());
  PrivateDir in_use("20260131-174502-4711-c0de1234");
  in_use.write("0.json", "{}");
  fs::create_directory(dir / "dslaunch-20260131-174502-12-c0de-abcdef");
  dir.write("dslaunch-20260131-174502-12-c0de-abcdef/0-ds.json", "{}");
  fs::create_directory(dir / "dslaunch-20260131-174502-12-c0de-sketch");
  dir.write("dslaunch-20260131-174502-12-c0de-sketch/notes", "a user's own");
  fs::create_directory(dir / "dslaunch-my-drafts");
  remove_abandoned_private_dirs();
  CHECK(fs::exists(in_use.path() + "/0.json"));
  CHECK_FALSE(fs::exists(dir / "dslaunch-20260131-174502-12-c0de-abcdef"));
  CHECK(fs::exists(dir / "dslaunch-20260131-174502-12-c0de-sketch/notes"));
  CHECK(fs::exists(dir / "dslaunch-my-drafts"));
}

TEST_CASE("another user's files are not reported", "[launch][doctor]") {
  if (getuid() != 0) return;
  Folder dir;
  auto file = dir.old_file("nccl-AbCdEf");
  REQUIRE(chown(file.c_str(), 65534, 65534) == 0);
  CHECK(leftover_shared_memory(dir.path()).empty());
}
