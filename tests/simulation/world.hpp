// One simulated world: a clock, a network, and the processes of several hosts with their descriptors and signals. The
// programs under test run in it unchanged; what they ask of the kernel is answered here (kernel_calls.cpp), and what
// they do to other processes and hosts too (simulated_*.cpp). Everything follows from a seed. One thread.
#pragma once
#include <poll.h>
#include <sys/types.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "simulation/clock.hpp"
#include "simulation/fiber.hpp"
#include "simulation/network.hpp"
#include "spawn/exit_cause.hpp"

namespace dslaunch::simulation {

// Thrown out of a simulated wait into a process that was killed, so that its stack unwinds. What the process still does
// then has no effect. A std::exception, since noexcept functions of the programs catch those.
struct ProcessKilled : std::exception {
  const char* what() const noexcept override { return "killed in the simulation"; }
};

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;  // 0: its parent has ended
  std::string host, name;
  std::map<std::string, std::string> env;
  bool is_rank = false;
  bool dies_with_parent = false;
  int attempt = 0, rank = -1;

  bool is_alive = true;
  bool told_to_end = false;      // by a signal of its agent or of a cleanup
  bool is_dying = false;         // a signal has ended it, but the kernel has not finished
  bool never_times_out = false;  // a planted bug
  spawn::ExitCause cause;
  std::deque<pid_t> ended_children;  // not reaped yet
  std::map<pid_t, spawn::ExitCause> causes_of_children;
  std::deque<int> pending_signals;     // for a program's inbox
  std::function<void(int)> on_signal;  // of a script; empty: the program's inbox gets signals
  std::function<void()> on_end;        // whatever ended it
  std::function<void()> while_asleep;  // now and then during a long sleep (Heartbeats)

  std::unique_ptr<Fiber> fiber;  // null: a script
  std::vector<pollfd>* polls = nullptr;
  bool is_blocked = false, wakes = false;
  uint64_t num_blocks = 0;
  Time stalled_until{0};
  int num_polls_at_once = 0;
  Time last_poll{-1};
};

class World {
 public:
  explicit World(uint64_t seed);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  // The one that exists.
  static World& current();
  static bool exists();

  Clock clock;
  Random random;
  Network network;

  // Ends the programs that still run, so that their stacks unwind; nothing else reacts to their ends.
  void shut_down();
  // ---- processes
  // A program: `main` returns its exit code. A null `main`: a script, which lives until end() or SIGKILL.
  Process& start(const std::string& host, const std::string& name, pid_t parent, std::function<int()> main);
  void end(Process& process, spawn::ExitCause cause);
  void signal(pid_t pid, int number);
  Process* find(pid_t pid);
  std::map<pid_t, std::unique_ptr<Process>>& processes() { return processes_; }
  // The process whose code runs.
  Process& self();
  bool in_program() const { return running_ != nullptr; }
  // It gets no processor for so long.
  void stall(Process& process, Duration length);

  // ---- what a running program may ask of its kernel
  static constexpr int kFirstDescriptor = 1 << 20;
  int poll(std::vector<pollfd>& polls, std::optional<Duration> timeout);
  void sleep(Duration length);
  long read(int fd, char* into, size_t most);
  long write(int fd, std::string_view bytes);
  void close(int fd);

  // ---- descriptors, of the process that runs unless another is given
  int open_reader(std::shared_ptr<Stream> stream, Process& owner);
  int open_writer(std::shared_ptr<Stream> stream, Process& owner);
  int open_signals();
  std::shared_ptr<Stream> make_stream(const std::string& from, const std::string& to);

  // ---- the record
  void note(const std::string& line);
  bool records = false;  // keeps the history; a failing seed is repeated with it
  const std::vector<std::string>& history() const { return history_; }
  uint64_t fingerprint() const { return fingerprint_; }
  // The first violation of an invariant ends the simulation.
  void violate(const std::string& what);
  const std::string& violation() const { return violation_; }

 private:
  struct Descriptor {
    pid_t owner = 0;
    std::shared_ptr<Stream> reads, writes;  // neither: signals
  };

  short ready(const pollfd& poll);
  bool any_ready(Process& process);
  void block(Process& process, std::optional<Time> due);
  void notify(pid_t pid);
  void resume(Process& process);
  int open(Descriptor descriptor);
  void close_all_of(pid_t owner);

  std::map<pid_t, std::unique_ptr<Process>> processes_;
  std::vector<Descriptor> descriptors_;
  Process* running_ = nullptr;
  pid_t next_pid_ = 100'000'000;  // beyond those of real processes
  std::vector<std::string> history_;
  uint64_t fingerprint_ = 14695981039346656037U;
  std::string violation_;
};

}  // namespace dslaunch::simulation
