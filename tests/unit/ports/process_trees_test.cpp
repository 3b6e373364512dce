#include "ports/process_trees.hpp"

#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <catch2/catch.hpp>

#include "unit/ports/holder_process.hpp"

using namespace dslaunch::ports;

namespace {

bool holds(const std::vector<TreeProcess>& tree, pid_t pid) {
  return std::any_of(tree.begin(), tree.end(), [&](const auto& process) { return process.pid == pid; });
}

}  // namespace

TEST_CASE("a process tree is a process and its descendants", "[ports][process_trees]") {
  HolderProcess child([] { return uint16_t{0}; });
  HolderProcess sibling([] { return uint16_t{0}; });
  auto trees = process_trees({::getpid()});
  REQUIRE(trees.size() == 1);
  CHECK(holds(trees[::getpid()], ::getpid()));
  CHECK(holds(trees[::getpid()], child.pid()));
  trees = process_trees({child.pid()});
  CHECK(holds(trees[child.pid()], child.pid()));
  CHECK_FALSE(holds(trees[child.pid()], sibling.pid()));
  CHECK_FALSE(holds(trees[child.pid()], ::getpid()));
}

TEST_CASE("an orphan belongs to the process whose session it is in", "[ports][process_trees]") {
  // The child's child starts a grandchild and ends; the grandchild's number is told as a "port" would be.
  int numbers[2];
  REQUIRE(::pipe(numbers) == 0);
  HolderProcess leader([&] {
    ::setsid();
    if (::fork() == 0) {
      const pid_t orphan = ::fork();
      if (orphan == 0) {
        ::close(numbers[1]);
        ::pause();
      }
      [[maybe_unused]] const auto written = ::write(numbers[1], &orphan, sizeof orphan);
      ::_exit(0);
    }
    return uint16_t{0};
  });
  pid_t orphan = -1;
  REQUIRE(::read(numbers[0], &orphan, sizeof orphan) == sizeof orphan);
  CHECK(holds(process_trees({leader.pid()})[leader.pid()], orphan));
  ::kill(orphan, SIGKILL);
  ::close(numbers[0]);
  ::close(numbers[1]);
}

TEST_CASE("a missing process has no tree", "[ports][process_trees]") {
  HolderProcess child([] { return uint16_t{0}; });
  const pid_t pid = child.pid();
  child.end();
  CHECK(process_trees({pid}).empty());
}

TEST_CASE("the CPU time of a process grows as it computes", "[ports][process_trees]") {
  const auto ticks = [] { return read_process_stat(::getpid())->cpu_ticks; };
  const uint64_t before = ticks();
  while (ticks() < before + 2) {
  }
  CHECK(ticks() >= before + 2);
}
