#include "launch/process/end_processes.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace std::chrono_literals;

namespace {

// A child that is ready when the constructor returns; ended and reaped by the destructor.
class Child {
 public:
  explicit Child(const std::function<void()>& prepare = [] {}) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      signal(SIGTERM, SIG_DFL);  // the test program has a handler of its own
      prepare();
      if (write(ready[1], "x", 1) != 1) _exit(1);
      while (true) pause();
    }
    char byte;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Child() {
    if (!reaped_) kill(pid_, SIGKILL);
    reap();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  ports::ProcessIdentity identity() const { return ports::read_process(pid_)->identity; }
  // The signal that ended it.
  int reap() {
    int status = 0;
    if (!reaped_) waitpid(pid_, &status, 0);
    reaped_ = true;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
  bool runs() const { return !reaped_ && waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  pid_t pid_ = -1;
  bool reaped_ = false;
};

}  // namespace

TEST_CASE("all processes get SIGTERM, the remaining ones SIGKILL, under one timeout", "[launch][doctor]") {
  Child polite, deaf([] { signal(SIGTERM, SIG_IGN); }), deaf_too([] { signal(SIGTERM, SIG_IGN); });
  auto outcomes = end_processes({polite.identity(), deaf.identity(), deaf_too.identity()}, 200ms);
  CHECK(outcomes[0].text == "ended");
  CHECK(outcomes[1].text == "killed");
  CHECK(outcomes[2].text == "killed");
  CHECK((outcomes[0].gone && outcomes[1].gone && outcomes[2].gone));
  CHECK(polite.reap() == SIGTERM);
  CHECK(deaf.reap() == SIGKILL);
}

TEST_CASE("a stopped process is continued so that it gets SIGTERM", "[launch][doctor]") {
  Child stopped;
  kill(stopped.pid(), SIGSTOP);
  REQUIRE(waitpid(stopped.pid(), nullptr, WUNTRACED) == stopped.pid());
  CHECK(end_processes({stopped.identity()}, 60s)[0].text == "ended");
}

TEST_CASE("a later process with the same pid is not touched", "[launch][doctor]") {
  Child innocent;
  auto earlier = innocent.identity();
  --earlier.start_ticks;
  auto outcomes = end_processes({earlier}, 100ms);
  CHECK(outcomes[0].gone);
  CHECK(outcomes[0].text == "had ended already");
  CHECK(innocent.runs());
}

TEST_CASE("a zombie and a missing process count as ended", "[launch][doctor]") {
  Child zombie;
  auto identity = zombie.identity();
  kill(zombie.pid(), SIGKILL);
  siginfo_t ended;
  REQUIRE(waitid(P_PID, static_cast<id_t>(zombie.pid()), &ended, WEXITED | WNOWAIT) == 0);
  CHECK(end_processes({identity}, 100ms)[0].text == "had ended already");
  zombie.reap();
  CHECK(end_processes({identity}, 100ms)[0].text == "had ended already");
}
