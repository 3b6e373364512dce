#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "base/format.hpp"
#include "launch/stacks/collect_stacks.hpp"
#include "launch/stacks/group_stacks.hpp"
#include "launch/stacks/kernel_stacks.hpp"
#include "launch/stacks/stack_tool.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

TEST_CASE("stacks that differ in addresses and numbers of threads are equal", "[launch][stacks]") {
  const auto groups =
      group_stacks({{2, 12, "gdb", "Thread 1 (Thread 0x7f12 (LWP 12)):\n#0  0x00ab in f () at a.c:7", ""},
                    {0, 10, "gdb", "Thread 1 (Thread 0x7e10 (LWP 10)):\n#0  0x00cd in f () at a.c:7", ""},
                    {1, 11, "gdb", "Thread 1 (Thread 0x7e10 (LWP 10)):\n#0  0x00cd in f () at a.c:8", ""},
                    {3, 13, "kernel", "main thread", ""}});
  REQUIRE(groups.size() == 3);
  REQUIRE(groups[0].ranks.size() == 2);
  CHECK((groups[0].ranks[0].rank == 0 && groups[0].ranks[1].rank == 2));
  CHECK(groups[1].ranks[0].rank == 1);
  CHECK(groups[2].ranks[0].rank == 3);
}

TEST_CASE("keeps the program's lines of py-spy's output", "[launch][stacks]") {
  CHECK(without_numbers_of_processes("Process 4711: python train.py\nThread 4711 (idle): \"MainThread\"\n"
                                     "    f (train.py:12)\n") ==
        "Process : python train.py\nThread  (idle): \"MainThread\"\n    f (train.py:12)\n");
}

TEST_CASE("keeps the threads of gdb's output", "[launch][stacks]") {
  CHECK(threads_in_gdb_output("[New LWP 9]\nwarning: x\n0x0 in y ()\n\nThread 1 (Thread 0x7f (LWP 8) \"a\"):\n"
                              "#0  0x0 in y ()\n#1  0x1 in main ()\n[Inferior 1 (process 8) detached]\n") ==
        "Thread 1 (Thread 0x7f (LWP 8) \"a\"):\n#0  0x0 in y ()\n#1  0x1 in main ()\n");
  CHECK(threads_in_gdb_output("Could not attach to process.\nptrace: Operation not permitted.\n").empty());
}

TEST_CASE("a system call has its name", "[launch][stacks]") {
  CHECK(system_call_in(fmt::format("{} 0x1 0x2", SYS_futex)) == "futex");
  CHECK(system_call_in("9999 0x1") == "system call 9999");
  CHECK(system_call_in("running").empty());
  CHECK(system_call_in("-1 0x7 0x8").empty());
  CHECK(system_call_in("").empty());
}

TEST_CASE("the kernel says that a process is stopped", "[launch][stacks]") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  ::kill(child, SIGSTOP);
  ::waitpid(child, nullptr, WUNTRACED);
  CHECK_THAT(kernel_stacks(child),
             Catch::StartsWith("main thread '") && Catch::Contains("' is stopped, e.g. by SIGSTOP"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(kernel_stacks(child).empty());
}

TEST_CASE("the collector's document survives encoding and decoding", "[launch][stacks]") {
  const auto read = stacks_from_json(stacks_to_json({{4711, "gdb", "a\n\"b\"", "note"}})).value();
  REQUIRE(read.size() == 1);
  CHECK((read[0].pid == 4711 && read[0].source == "gdb" && read[0].text == "a\n\"b\"" && read[0].note == "note"));
  CHECK_FALSE(stacks_from_json("").has_value());
  CHECK_FALSE(stacks_from_json("[{\"pid\": \"x\"}]").has_value());
}
