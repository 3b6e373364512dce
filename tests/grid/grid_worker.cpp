// The grid's pool of persistent ranks: one program for all cases of one world size, since a launch for each of a
// thousand cases would take hours.
//
//   grid_worker WORLD_SIZE        cases on standard input, results on standard output (grid_rank.hpp)
//
// This process binds the store's port, forks the ranks, serves the store and waits. It ends with 0 after the last case,
// and with 1 as soon as the pool is of no use any more: the driver starts another one. SIGQUIT makes every rank print
// the stack of its main thread: the driver asks for it before it ends a pool that hangs.
#include <execinfo.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "grid_rank.hpp"
#include "ports/held_port.hpp"
#include "rendezvous/store_server.hpp"
#include "rendezvous/stream_socket.hpp"

namespace {

using namespace dslaunch;

constexpr int kGraceMilliseconds = 10'000;  // between the first rank that fails and the end of the others

std::array<std::atomic<pid_t>, 64> g_ranks;  // for the signal handler

void pass_on(int signal) {
  for (auto& pid : g_ranks) {
    if (pid > 0) ::kill(pid, signal);
  }
}

void print_stack(int) {
  std::array<void*, 64> frames{};
  const int count = ::backtrace(frames.data(), frames.size());
  static const char kTitle[] = "--- stack of a rank's main thread\n";
  [[maybe_unused]] auto written = ::write(STDERR_FILENO, kTitle, sizeof kTitle - 1);
  ::backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
}

// What the runtime prints goes to standard error: standard output is the results'.
int keep_results_apart() {
  const int results = ::dup(STDOUT_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  return results;
}

// More ranks than cores: a rank that is interrupted while it holds a lock of Gloo's lets Gloo's thread spin until it
// goes on, which costs more than half of the time. Ranks of a batch do not interrupt one another when they wake up.
void run_as_batch() {
  const sched_param none{};
  ::sched_setscheduler(0, SCHED_BATCH, &none);  // inherited by the ranks; only slower where it is refused
}

[[noreturn]] void be_a_rank(const rendezvous::LaunchEnv& env, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) std::_Exit(1);
  std::array<void*, 1> warm{};
  ::backtrace(warm.data(), 1);  // loads what the handler needs, which must not happen in a handler
  std::signal(SIGQUIT, print_stack);
  log::set_prefix("rank " + std::to_string(env.rank));
  log::set_level(log::Level::kWarning);
  int status = 1;
  try {
    const int results = keep_results_apart();
    status = test::GridRank(env).run(STDIN_FILENO, results);
  } catch (const std::exception& error) {
    log::error("the pool ends: {}", error.what());
  }
  std::fflush(nullptr);
  std::_Exit(status);
}

// 0 when all ranks ended well. After the first that did not, the others have a moment to notice.
int wait_for_ranks(const std::vector<pid_t>& ranks) {
  bool failed = false;
  int waited = 0;
  for (size_t open = ranks.size(); open > 0;) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, failed ? WNOHANG : 0);
    if (ended > 0) {
      --open;
      for (auto& pid : g_ranks) {
        if (pid == ended) pid = 0;
      }
      if (WIFSIGNALED(status)) log::error("a rank of the pool died of signal {}", WTERMSIG(status));
      failed |= status != 0;
    } else if (ended == 0) {
      ::poll(nullptr, 0, 20);
      waited += 20;
      if (waited == kGraceMilliseconds) pass_on(SIGKILL);
    }
  }
  return failed ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int size = argc == 2 ? std::atoi(argv[1]) : 0;
  if (size < 1 || size > static_cast<int>(g_ranks.size())) {
    std::fputs("usage: grid_worker WORLD_SIZE\n", stderr);
    return 64;
  }
  run_as_batch();
  auto listener = rendezvous::listen_on(0, /*loopback_only=*/true);
  rendezvous::LaunchEnv env;
  env.world_size = env.local_world_size = size;
  env.master_port = ports::bound_port(listener.get());
  env.agent_store = true;
  env.token = random_bytes(32);
  const pid_t parent = ::getpid();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      listener.reset();
      env.rank = env.local_rank = rank;
      be_a_rank(env, parent);
    }
    ranks.push_back(pid);
    g_ranks[static_cast<size_t>(rank)] = pid;
  }
  std::signal(SIGQUIT, pass_on);
  ::close(STDIN_FILENO);
  ::close(STDOUT_FILENO);
  rendezvous::StoreServerOptions options;
  options.world_size = size;
  options.token = env.token;
  const rendezvous::StoreServer server(std::move(listener), options);
  return wait_for_ranks(ranks);
}
