// A rank of a simulated job, in place of dsworker: it starts, joins the store, meets the other ranks at a barrier of
// the store in every step, and ends; it saves when it is told to end, and ends when it loses a peer. How fast and how
// well it does so is random.
#include <algorithm>
#include <csignal>
#include <memory>
#include <utility>

#include "base/format.hpp"
#include "simulation/simulation.hpp"

namespace dslaunch::simulation {
namespace {

using namespace std::chrono_literals;
using Kind = spawn::ExitCause::Kind;

constexpr int kPeerLost = 71, kTimeLimit = 124, kRunAgain = 75;
// Of a collective: the script's --hang_timeout.
constexpr Duration kHangTimeout = 60s;

class RankScript : public std::enable_shared_from_this<RankScript> {
 public:
  explicit RankScript(Process& process)
      : process_(process),
        simulation_(Simulation::current()),
        world_(simulation_.world),
        host_(process.host),
        pid_(process.pid) {
    ignores_terms_ = world_.random.one_in(8);
    is_slow_to_notice_ = world_.random.one_in(8);
    time_in_kernel_ = world_.random.one_in(40) ? world_.random.between(Duration(1s), Duration(9s))
                                               : world_.random.between(Duration(1ms), Duration(60ms));
  }

  void begin() {
    process_.on_signal = [self = shared_from_this()](int signal) { self->take(signal); };
    process_.on_end = [self = shared_from_this()] { self->ended(); };
    if (world_.random.one_in(10)) leave_daemon();
    const Duration start = world_.random.between(Duration(50ms), Duration(world_.random.one_in(5) ? 4s : 500ms));
    later(start, [](RankScript& self) {
      self.has_begun_ = true;
      self.join();
    });
  }

 private:
  using Step = std::function<void(RankScript&)>;

  void later(Duration delay, Step step) {
    world_.clock.after(delay, [self = shared_from_this(), step = std::move(step)] {
      if (self->process_.is_alive && !self->process_.is_dying) step(*self);
    });
  }

  // A process of the job without its agent's knowledge.
  void leave_daemon() {
    Process& daemon = world_.start(host_, "a daemon of " + process_.name, pid_, nullptr);
    daemon.env = process_.env;
    daemon.rank = process_.rank;
    daemon.attempt = process_.attempt;
    daemon.on_signal = [this_world = &world_, &daemon](int signal) {
      if (signal == SIGKILL) this_world->end(daemon, {Kind::kSignaled, SIGKILL, false, {}});
    };
  }

  void exit_with(int code) { world_.end(process_, {Kind::kExited, code, false, {}}); }

  void take(int signal) {
    if (signal == SIGCONT || signal == SIGCHLD || process_.is_dying) return;
    if (signal == SIGTERM && has_begun_) return save_and_end();
    // The kernel releases its memory first, or waits for a disk.
    process_.is_dying = true;
    world_.clock.after(signal == SIGKILL ? time_in_kernel_ : Duration(1ms), [self = shared_from_this(), signal] {
      self->world_.end(self->process_, {Kind::kSignaled, signal, false, {}});
    });
  }

  void save_and_end() {
    if (ignores_terms_ || std::exchange(is_saving_, true)) return;
    later(world_.random.between(Duration(1ms), Duration(3s)), [](RankScript& self) { self.exit_with(kRunAgain); });
  }

  // ---- the store

  // Packets of one connection arrive in order.
  void send(const std::string& from, const std::string& to, Time& last, std::function<void()> arrive) {
    last = std::max(last, world_.clock.now() + world_.network.latency(from, to));
    world_.clock.at(last, [&network = world_.network, from, to, arrive = std::move(arrive)]() mutable {
      network.when_open(from, to, std::move(arrive));
    });
  }
  void ask(std::function<void(SimulatedStore&)> what) {
    send(host_, store_host_, last_to_store_, [self = shared_from_this(), what = std::move(what)] {
      SimulatedStore& store = *self->simulation_.stores.at(self->process_.attempt);
      const Process* agent = self->world_.find(store.agent);
      if (agent->is_alive) return what(store);
      self->hear([](RankScript& rank) { rank.lose_store(); });  // the kernel there resets the connection
    });
  }
  void hear(Step step) {
    send(store_host_, host_, last_from_store_, [self = shared_from_this(), step = std::move(step)] {
      if (self->process_.is_alive && !self->process_.is_dying) step(*self);
    });
  }

  bool has_store() const { return simulation_.stores.contains(process_.attempt) && world_size() > 1; }
  int world_size() const { return std::stoi(process_.env.at("WORLD_SIZE")); }

  void join() {
    if (!has_store()) return train();
    store_host_ = simulation_.stores.at(process_.attempt)->host;
    ask([self = shared_from_this()](SimulatedStore& store) {
      store.connected[self->process_.rank] = self->pid_;
      store.state->join(self->process_.rank, self->host_);
      if (!store.state->lost_ranks().empty()) return self->hear([](RankScript& rank) { rank.lose_peer(); });
      self->hear([](RankScript& rank) { rank.train(); });
    });
  }

  void train() {
    if (num_steps_ == simulation_.scenario.num_steps) return finish();
    const Duration step = simulation_.scenario.step_time;
    later(step + world_.random.between(Duration(0), step / 4), [](RankScript& self) { self.meet(); });
  }

  void meet() {
    const int step = num_steps_++;
    if (!has_store()) return train();
    ask([self = shared_from_this(), step](SimulatedStore& store) {
      store.state->barrier(self->process_.rank, fmt::format("step {}", step), self->world_size(),
                           [self](const rendezvous::Answer& answer) {
                             const bool lost = answer.status == rendezvous::wire::Status::kPeerLost;
                             self->hear([lost](RankScript& rank) { lost ? rank.lose_peer() : rank.train(); });
                           });
    });
    later(kHangTimeout, [step](RankScript& self) {
      if (self.num_steps_ == step + 1 && !self.is_finishing_) self.exit_with(kTimeLimit);
    });
  }

  void finish() {
    is_finishing_ = true;
    if (!has_store()) return exit_with(0);
    ask([self = shared_from_this()](SimulatedStore& store) {
      store.state->leave(self->process_.rank);
      self->hear([](RankScript& rank) { rank.exit_with(0); });
    });
  }

  // A rank that has only to leave needs no answer.
  void lose_store() { is_finishing_ ? exit_with(0) : lose_peer(); }

  // Every loss reaches every rank, once.
  void lose_peer() {
    if (is_finishing_ || std::exchange(has_lost_peer_, true)) return;
    const Duration moment =
        is_slow_to_notice_ ? world_.random.between(Duration(1s), Duration(20s)) : world_.random.up_to(400ms);
    later(moment, [](RankScript& self) { self.exit_with(kPeerLost); });
  }

  // The kernel closes its connection: the store's server tells the others.
  void ended() {
    simulation_.rank_ends.push_back(
        {process_.attempt, process_.rank, host_, world_.clock.now(), process_.cause, process_.told_to_end});
    if (store_host_.empty()) return;
    const auto lose = [self = shared_from_this()](SimulatedStore& store) {
      if (!store.state->lose(self->process_.rank, "the connection is closed")) return;
      for (const auto& [rank, pid] : store.connected) self->tell_loss(store, pid);
    };
    ask(lose);
    // A host that is dead says nothing: the store's machine gives the connection up.
    world_.clock.after(world_.random.between(Duration(1s), Duration(20s)), [self = shared_from_this(), lose] {
      SimulatedStore& store = *self->simulation_.stores.at(self->process_.attempt);
      if (self->world_.find(store.agent)->is_alive) lose(store);
    });
  }

  void tell_loss(const SimulatedStore& store, pid_t pid) {
    const Process* peer = world_.find(pid);
    if (!peer->is_alive) return;
    const auto found = simulation_.scripts.find(pid);
    world_.network.send(store.host, peer->host, [script = found->second] {
      auto& rank = *static_cast<RankScript*>(script.get());
      if (rank.process_.is_alive && !rank.process_.is_dying) rank.lose_peer();
    });
  }

  Process& process_;
  Simulation& simulation_;
  World& world_;
  const std::string host_;
  const pid_t pid_;
  std::string store_host_;  // empty: not connected yet
  Time last_to_store_{0}, last_from_store_{0};
  int num_steps_ = 0;
  bool ignores_terms_ = false, is_slow_to_notice_ = false;
  Duration time_in_kernel_{0};
  bool has_begun_ = false, is_saving_ = false, is_finishing_ = false, has_lost_peer_ = false;
};

}  // namespace

void start_rank_script(Process& rank) {
  const auto script = std::make_shared<RankScript>(rank);
  Simulation::current().scripts[rank.pid] = script;
  script->begin();
}

}  // namespace dslaunch::simulation
