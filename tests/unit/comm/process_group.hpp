// Ranks as forked processes that share a store: for tests of what crosses processes, death among it.
#pragma once
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "ports/held_port.hpp"
#include "rendezvous/store.hpp"
#include "rendezvous/store_server.hpp"
#include "rendezvous/stream_socket.hpp"

namespace dslaunch::test {

inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct RankContext {
  int rank = 0, size = 1;
  rendezvous::Store& store;
  int report_fd = -1;
  // Tells the test that this rank is where it wants to be; the test may kill it now.
  void announce() const { [[maybe_unused]] auto written = ::write(report_fd, "\x01", 1); }
};

struct RankReport {
  std::string text;  // what the body returned: empty when all was well
  int status = 0;    // of waitpid
};

struct ProcessGroup {
  std::vector<RankReport> reports;
  double killed_at = 0;
};

// Runs `body` in `size` processes. `kill_rank` gets SIGKILL when it announces itself. Ends everything after a minute.
inline ProcessGroup run_ranks(int size, const std::function<std::string(const RankContext&)>& body,
                              int kill_rank = -1) {
  struct Child {
    pid_t pid = -1;
    UniqueFd report;
  };
  auto listener = rendezvous::listen_on(0, true);
  rendezvous::LaunchEnv env;
  env.world_size = size;
  env.local_world_size = size;
  env.master_port = ports::bound_port(listener.get());
  env.agent_store = true;
  env.token = random_bytes(32);
  std::vector<Child> children;
  for (int rank = 0; rank < size; ++rank) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid_t pid = ::fork();
    if (pid == 0) {
      listener.reset();
      ::close(ends[0]);
      for (auto& other : children) other.report.reset();
      std::string text;
      try {
        env.rank = env.local_rank = rank;
        auto store = rendezvous::connect_store(env, Deadline::after(std::chrono::seconds(30)));
        text = body(RankContext{rank, size, *store, ends[1]});
        store->leave();
      } catch (const std::exception& error) {
        text = std::string("exception: ") + error.what();
      }
      [[maybe_unused]] auto written = ::write(ends[1], text.data(), text.size());
      ::_exit(text.empty() ? 0 : 1);
    }
    ::close(ends[1]);
    children.push_back({pid, UniqueFd(ends[0])});
  }

  rendezvous::StoreServerOptions options;
  options.world_size = size;
  options.token = env.token;
  rendezvous::StoreServer server(std::move(listener), options);
  ProcessGroup out;
  out.reports.resize(static_cast<size_t>(size));
  auto deadline = Deadline::after(std::chrono::seconds(60));
  for (int open = size; open > 0;) {
    std::vector<pollfd> entries;
    for (auto& child : children) entries.push_back({child.report.get(), POLLIN, 0});
    if (::poll(entries.data(), entries.size(), static_cast<int>(deadline.left().count())) == 0) {
      for (auto& child : children) ::kill(child.pid, SIGKILL);
    }
    for (int rank = 0; rank < size; ++rank) {
      auto& child = children[static_cast<size_t>(rank)];
      if (!child.report.valid() || !entries[static_cast<size_t>(rank)].revents) continue;
      char piece[4096];
      ssize_t got = ::read(child.report.get(), piece, sizeof piece);
      if (got <= 0) {
        child.report.reset();
        --open;
        continue;
      }
      std::string text(piece, static_cast<size_t>(got));
      if (text[0] == '\x01') {
        text.erase(0, 1);
        if (rank == kill_rank) {
          out.killed_at = now_seconds();
          ::kill(child.pid, SIGKILL);
        }
      }
      out.reports[static_cast<size_t>(rank)].text += text;
    }
  }
  for (int rank = 0; rank < size; ++rank) {
    ::waitpid(children[static_cast<size_t>(rank)].pid, &out.reports[static_cast<size_t>(rank)].status, 0);
  }
  return out;
}

inline void check_all_well(const ProcessGroup& group) {
  for (size_t rank = 0; rank < group.reports.size(); ++rank) {
    INFO("rank " << rank << ": " << group.reports[rank].text);
    CHECK(group.reports[rank].text.empty());
    CHECK(group.reports[rank].status == 0);
  }
}

}  // namespace dslaunch::test
