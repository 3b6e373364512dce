#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ops/empty.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <thread>

#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/checkpoint/checkpoint_writer.hpp"
#include "saved_example.hpp"
#include "support/memory_store.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

// Saves without end; tells the parent when the first save is done.
[[noreturn]] void save_forever(const std::string& dir, int64_t first_step, int first_done) {
  test::MemoryStore store;
  CheckpointWriter writer({dir, 0, 1}, store);
  for (int64_t step = first_step;; ++step) {
    // Every third step is saved twice, so that the kill also meets a folder that is being replaced.
    for (int times = step % 3 == 0 ? 2 : 1; times > 0; --times) writer.save(test::example_part(step, 0, 1));
    writer.finish();
    if (step == first_step && ::write(first_done, "x", 1) != 1) ::_exit(1);
  }
}

}  // namespace

TEST_CASE("a kill at any moment of a save leaves a checkpoint that loads", "[runtime][checkpoint][multiproc]") {
  test::TempDir dir;
  int64_t step = 0;
  for (int attempt = 0; attempt < 40; ++attempt) {
    int pipe_ends[2];
    REQUIRE(::pipe(pipe_ends) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) save_forever(dir.path(), step + 1, pipe_ends[1]);
    char done = 0;
    REQUIRE(::read(pipe_ends[0], &done, 1) == 1);
    // Not to wait for anything: the moment of the kill is what varies.
    std::this_thread::sleep_for(std::chrono::microseconds(attempt * 613));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(pipe_ends[0]);
    ::close(pipe_ends[1]);

    CheckpointReader reader(dir.path());
    const int64_t found = reader.metadata().step;
    REQUIRE(found > step);
    at::Tensor out = at::empty({10});
    reader.read_into("w", "master", 0, out);
    REQUIRE(out.equal(test::example_values(found, 0, 10)));
    REQUIRE(steps_in(dir.path()).size() <= 4);
    step = found;
  }
}
