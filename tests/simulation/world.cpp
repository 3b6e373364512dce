#include "simulation/world.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/format.hpp"

namespace dslaunch::simulation {
namespace {

using namespace std::chrono_literals;

// Without any progress of time: the program would use a whole core.
constexpr int kMaxPollsAtOnce = 5000;

World* g_world = nullptr;

}  // namespace

World::World(uint64_t seed) : random(seed), network(clock, random) {
  g_world = this;
}

World::~World() {
  shut_down();
  g_world = nullptr;
}

void World::shut_down() {
  for (auto& [pid, process] : processes_) process->on_end = nullptr;
  for (auto& [pid, process] : processes_) {
    if (process->is_alive) end(*process, {spawn::ExitCause::Kind::kSignaled, SIGKILL, false, {}});
    while (process->fiber && !process->fiber->has_ended()) resume(*process);
  }
}

World& World::current() {
  return *g_world;
}

bool World::exists() {
  return g_world != nullptr;
}

Process& World::self() {
  return *running_;
}

Process* World::find(pid_t pid) {
  const auto found = processes_.find(pid);
  return found == processes_.end() ? nullptr : found->second.get();
}

Process& World::start(const std::string& host, const std::string& name, pid_t parent, std::function<int()> main) {
  const pid_t pid = next_pid_++;
  Process& process = *processes_.emplace(pid, std::make_unique<Process>()).first->second;
  process.pid = pid;
  process.parent = parent;
  process.host = host;
  process.name = name;
  note(fmt::format("{} starts on {} (process {})", name, host, pid));
  if (!main) return process;
  process.fiber = std::make_unique<Fiber>([this, &process, main = std::move(main)] {
    int code = 70;
    try {
      code = main();
    } catch (const ProcessKilled&) {
    } catch (const std::exception& error) {
      violate(fmt::format("{} ended by an exception: {}", process.name, error.what()));
    }
    end(process, {spawn::ExitCause::Kind::kExited, code, false, {}});
  });
  process.is_blocked = true;
  clock.after(random.between(1ms, 20ms), [this, &process] { resume(process); });
  return process;
}

void World::end(Process& process, spawn::ExitCause cause) {
  if (!process.is_alive) return;
  process.is_alive = false;
  process.cause = cause;
  note(fmt::format("{} ends: {}", process.name, spawn::describe(cause)));
  Process* const acting = std::exchange(running_, nullptr);  // what follows is the kernel's doing
  close_all_of(process.pid);
  for (auto& [pid, child] : processes_) {
    if (child->parent != process.pid) continue;
    child->parent = process.is_rank ? process.parent : 0;  // an agent is the subreaper of its ranks
    if (child->dies_with_parent) signal(pid, SIGKILL);
  }
  if (Process* parent = find(process.parent); parent != nullptr && parent->is_alive) {
    parent->ended_children.push_back(process.pid);
    parent->causes_of_children[process.pid] = std::move(cause);
    signal(parent->pid, SIGCHLD);
  }
  if (process.on_end) process.on_end();
  running_ = acting;
  // A program's stack unwinds when nothing else runs.
  if (process.fiber && running_ != &process) clock.at(clock.now(), [this, &process] { resume(process); });
}

void World::signal(pid_t pid, int number) {
  if (running_ != nullptr && !running_->is_alive) return;
  Process* process = find(pid);
  if (process == nullptr || !process->is_alive) return;
  if (process->on_signal) return process->on_signal(number);
  if (number == SIGKILL) return end(*process, {spawn::ExitCause::Kind::kSignaled, SIGKILL, false, {}});
  auto& pending = process->pending_signals;
  if (std::find(pending.begin(), pending.end(), number) == pending.end()) pending.push_back(number);
  notify(pid);
}

void World::stall(Process& process, Duration length) {
  note(fmt::format("{} gets no processor for {} ms", process.name, length / 1ms));
  process.stalled_until = std::max(process.stalled_until, clock.now() + length);
}

void World::resume(Process& process) {
  if (process.fiber->has_ended()) return;
  process.is_blocked = process.wakes = false;
  ++process.num_blocks;
  Process* before = std::exchange(running_, &process);
  process.fiber->resume();
  running_ = before;
}

void World::block(Process& process, std::optional<Time> due) {
  process.is_blocked = true;
  const uint64_t number = process.num_blocks;
  if (due && !process.never_times_out) {
    clock.at(std::max(*due, process.stalled_until), [this, &process, number] {
      if (process.is_alive && process.is_blocked && process.num_blocks == number) resume(process);
    });
  }
  notify(process.pid);
  process.fiber->pause();
}

// Wakes a process if what it waits for has come: after the moment that the kernel takes to run it again.
void World::notify(pid_t pid) {
  Process* process = find(pid);
  if (process == nullptr || !process->is_alive || !process->is_blocked || process->wakes) return;
  if (process->polls == nullptr || !any_ready(*process)) return;
  process->wakes = true;
  const Duration moment = random.one_in(50) ? random.between(1ms, 30ms) : random.between(5us, 100us);
  clock.at(std::max(clock.now() + moment, process->stalled_until), [this, process, number = process->num_blocks] {
    if (process->is_alive && process->is_blocked && process->num_blocks == number) resume(*process);
  });
}

int World::poll(std::vector<pollfd>& polls, std::optional<Duration> timeout) {
  Process& process = self();
  process.num_polls_at_once = process.last_poll == clock.now() ? process.num_polls_at_once + 1 : 0;
  process.last_poll = clock.now();
  if (process.num_polls_at_once > kMaxPollsAtOnce) violate(process.name + " polls without end");
  process.polls = &polls;
  if (process.is_alive) block(process, timeout ? std::optional(clock.now() + *timeout) : std::nullopt);
  process.polls = nullptr;
  if (!process.is_alive && std::uncaught_exceptions() == 0) throw ProcessKilled();
  int num_ready = 0;
  for (auto& poll : polls) {
    poll.revents = process.is_alive ? ready(poll) : short{0};
    num_ready += poll.revents != 0 ? 1 : 0;
  }
  return num_ready;
}

void World::sleep(Duration length) {
  constexpr Duration kTurn = 500ms;
  for (const Time end = clock.now() + length; clock.now() < end;) {
    std::vector<pollfd> none;
    poll(none, std::min(kTurn, end - clock.now()));
    if (self().while_asleep) self().while_asleep();
  }
}

bool World::any_ready(Process& process) {
  return std::any_of(process.polls->begin(), process.polls->end(),
                     [this](const pollfd& poll) { return ready(poll) != 0; });
}

short World::ready(const pollfd& poll) {
  if (poll.fd < kFirstDescriptor) return 0;
  const Descriptor& descriptor = descriptors_.at(static_cast<size_t>(poll.fd - kFirstDescriptor));
  int found = 0;
  if (descriptor.reads) {
    if (descriptor.reads->is_readable()) found |= poll.events & POLLIN;
    if (descriptor.reads->at_end()) found |= POLLHUP;
  } else if (descriptor.writes) {
    if (descriptor.writes->is_writable()) found |= poll.events & POLLOUT;
    if (descriptor.writes->reader_is_gone()) found |= POLLERR;
  } else if (Process* owner = find(descriptor.owner); owner != nullptr && !owner->pending_signals.empty()) {
    found |= poll.events & POLLIN;
  }
  return static_cast<short>(found);
}

int World::open(Descriptor descriptor) {
  descriptors_.push_back(std::move(descriptor));
  return kFirstDescriptor + static_cast<int>(descriptors_.size()) - 1;
}

int World::open_reader(std::shared_ptr<Stream> stream, Process& owner) {
  stream->on_readable = [this, pid = owner.pid] { notify(pid); };
  return open({owner.pid, std::move(stream), nullptr});
}

int World::open_writer(std::shared_ptr<Stream> stream, Process& owner) {
  stream->on_writable = [this, pid = owner.pid] { notify(pid); };
  return open({owner.pid, nullptr, std::move(stream)});
}

int World::open_signals() {
  return open({self().pid, nullptr, nullptr});
}

std::shared_ptr<Stream> World::make_stream(const std::string& from, const std::string& to) {
  return std::make_shared<Stream>(clock, random, network, from, to);
}

long World::read(int fd, char* into, size_t most) {
  const auto& stream = descriptors_.at(static_cast<size_t>(fd - kFirstDescriptor)).reads;
  if (!stream) return 0;
  const long got = stream->read(into, most);
  if (got < 0) errno = EAGAIN;
  return got;
}

long World::write(int fd, std::string_view bytes) {
  const auto& stream = descriptors_.at(static_cast<size_t>(fd - kFirstDescriptor)).writes;
  if (!stream || stream->reader_is_gone()) {
    errno = EPIPE;
    return -1;
  }
  const long wrote = stream->write(bytes);
  if (wrote > 0 || bytes.empty()) return wrote;
  errno = EAGAIN;
  return -1;
}

void World::close(int fd) {
  Descriptor& descriptor = descriptors_.at(static_cast<size_t>(fd - kFirstDescriptor));
  if (auto stream = std::exchange(descriptor.reads, nullptr)) stream->close_reader();
  if (auto stream = std::exchange(descriptor.writes, nullptr)) stream->close_writer();
}

void World::close_all_of(pid_t owner) {
  for (size_t i = 0; i < descriptors_.size(); ++i) {
    if (descriptors_[i].owner == owner) close(kFirstDescriptor + static_cast<int>(i));
  }
}

void World::note(const std::string& line) {
  const auto microseconds = clock.now() / 1us;
  for (const char c : line) fingerprint_ = (fingerprint_ ^ static_cast<unsigned char>(c)) * 1099511628211U;
  fingerprint_ = (fingerprint_ ^ static_cast<uint64_t>(microseconds)) * 1099511628211U;
  if (records) history_.push_back(fmt::format("{:12.6f} {}", static_cast<double>(microseconds) / 1e6, line));
}

void World::violate(const std::string& what) {
  if (!violation_.empty()) return;
  violation_ = what;
  note("VIOLATED: " + what);
}

}  // namespace dslaunch::simulation
