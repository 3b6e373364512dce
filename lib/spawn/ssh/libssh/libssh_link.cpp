#include "spawn/ssh/libssh/libssh_link.hpp"

#include <fcntl.h>
#include <libssh/callbacks.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>

#include "base/format.hpp"
#include "spawn/link_thread.hpp"
#include "spawn/pipe.hpp"
#include "spawn/ssh/backoff.hpp"
#include "spawn/ssh/explain.hpp"
#include "spawn/ssh/libssh/session.hpp"
#include "spawn/ssh/remote_command.hpp"

namespace dslaunch::spawn {
namespace {

using namespace std::chrono_literals;

// sshd sends the exit status right after the end of the output, unless the command closed its output and runs on.
constexpr auto kStatusTimeout = 5s;

// Time to send the last packet when the network accepts no data.
constexpr int kHangUpMs = 200;

int signal_number(std::string_view name) {
  for (int signal = 1; signal < NSIG; ++signal) {
    const char* known = ::sigabbrev_np(signal);
    if (known != nullptr && name == known) return signal;
  }
  return SIGKILL;
}

// Bytes in transit in one direction: filled in one read when the buffer is empty, drained piece by piece.
class TransferBuffer {
 public:
  bool empty() const { return begin_ == end_; }
  std::string_view bytes() const { return {storage_.data() + begin_, end_ - begin_}; }
  void taken(size_t count) { begin_ += count; }
  // Room for `bytes` bytes; the buffer's previous content is lost.
  char* room(size_t bytes) {
    if (storage_.size() < bytes) storage_.resize(bytes);
    return storage_.data();
  }
  void filled(size_t count) { begin_ = 0, end_ = count; }

 private:
  std::vector<char> storage_;
  size_t begin_ = 0, end_ = 0;
};

constexpr size_t kPipeBytes = 64 << 10;

}  // namespace

struct LibsshLink::State : LinkState {
  // Fixed after construction.
  SshTarget target;
  SshOptions options;
  std::string program, command;
  Interrupt interrupt;

  // Used by the link's thread only.
  ssh_channel_callbacks_struct callbacks{};
  SshSession* session = nullptr;
  ssh_channel channel = nullptr;
  TransferBuffer up, down;
  bool input_ended = false;
  Deadline status_deadline = Deadline::never();

  void run();
  std::optional<LinkFailure> live();
  std::unique_ptr<SshSession> reach();
  void listen_for_the_end();
  void carry();
  void hang_up();
  bool may_send() const;
  bool carry_errors();
  bool carry_down();
  bool carry_up();
  bool at_end();
  void rest();
  [[noreturn]] void broken() const;
  void note(ExitCause end);
};

namespace {

// All threads that use libssh must end before the process tears it and OpenSSL down: at exit they are interrupted and
// waited for.
class LiveLinks {
 public:
  static LiveLinks& instance() {
    static LiveLinks* links = [] {
      // OpenSSL tears itself down in a handler that it registers with its first use: that comes first, so that this
      // one, registered later, runs before it.
      char unused = 0;
      ssh_get_random(&unused, 1, 0);
      std::atexit([] { instance().leave(); });
      return new LiveLinks;  // never destroyed: threads blocked in a name lookup may outlive everything
    }();
    return *links;
  }
  void add(const std::shared_ptr<LibsshLink::State>& state) {
    std::lock_guard lock(mutex_);
    links_[state.get()] = state;
  }
  void remove(const LibsshLink::State* state) {
    std::lock_guard lock(mutex_);
    links_.erase(state);
    changed_.notify_all();
  }

 private:
  void leave() {
    std::unique_lock lock(mutex_);
    for (const auto& [key, link] : links_) {
      if (auto state = link.lock()) state->interrupt.set();
    }
    changed_.wait_for(lock, 2s, [&] { return links_.empty(); });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<const LibsshLink::State*, std::weak_ptr<LibsshLink::State>> links_;
};

}  // namespace

void LibsshLink::State::run() {
  std::optional<LinkFailure> why;
  try {
    why = live();
  } catch (const ConnectError& failed) {
    why = failed.failure;
  } catch (const Interrupted&) {
  } catch (const std::exception& error) {
    why = LinkFailure{.phase = "connection", .text = error.what()};
  }
  session = nullptr;
  finish(std::move(why));
}

std::optional<LinkFailure> LibsshLink::State::live() {
  listen_for_the_end();
  auto connected = reach();
  session = connected.get();
  try {
    carry();
  } catch (const Interrupted&) {
    hang_up();
    throw;
  }
  std::lock_guard lock(mutex);
  if (!cause) {
    return LinkFailure{.phase = "connection",
                       .text = fmt::format("{} on {} closed its output without an exit status", program, target.host)};
  }
  if (cause->success()) return std::nullopt;
  return explain_remote_end(target, program, *cause, errors.text());
}

// Closing the connection does not end a remote process that waits for something else: a login shell that hangs in a
// start-up file stays. sshd forwards the signal to the whole session; an sshd that does not changes nothing.
void LibsshLink::State::hang_up() {
  ssh_channel_request_send_signal(channel, "HUP");
  ssh_blocking_flush(session->get(), kHangUpMs);
}

// Returns when the command is started; begins again from scratch when sshd drops the connection.
std::unique_ptr<SshSession> LibsshLink::State::reach() {
  Deadline deadline = Deadline::after(options.connect_timeout);
  Backoff backoff(deadline);
  for (int attempts = 1;; ++attempts) {
    try {
      auto attempt = std::make_unique<SshSession>(target, options, deadline, interrupt);
      attempt->connect();
      attempt->check_host_key();
      attempt->authenticate();
      channel = attempt->start(command, callbacks);
      return attempt;
    } catch (ConnectError& failed) {
      if (!failed.dropped) throw;
      auto pause = backoff.next();
      if (!pause) {
        failed.failure.text += fmt::format(
            "; tried {} times in {} s. A busy sshd drops connections beyond its MaxStartups: raise that in its "
            "sshd_config",
            attempts, options.connect_timeout.count() / 1000.0);
        throw;
      }
      interrupt.wait_for(-1, 0, Deadline::after(*pause));
    }
  }
}

void LibsshLink::State::listen_for_the_end() {
  callbacks.userdata = this;
  callbacks.channel_exit_status_function = [](ssh_session, ssh_channel, int status, void* self) {
    static_cast<State*>(self)->note({.kind = ExitCause::Kind::kExited, .number = status});
  };
  callbacks.channel_exit_signal_function = [](ssh_session, ssh_channel, const char* name, int core, const char*,
                                              const char*, void* self) {
    static_cast<State*>(self)->note(
        {.kind = ExitCause::Kind::kSignaled, .number = signal_number(name), .core_dumped = core != 0});
  };
  ssh_callbacks_init(&callbacks);
}

void LibsshLink::State::note(ExitCause end) {
  std::lock_guard lock(mutex);
  cause = std::move(end);
}

// Each call into libssh may consume packets meant for any other call. So the output comes last, since nothing else
// signals pending output, and may_send() is checked again: only then is it safe to sleep. Packets are read from the
// socket in every round, even while the caller does not read: libssh can write, and answer sshd's keep-alive requests,
// only while it handles packets.
void LibsshLink::State::carry() {
  for (;;) {
    bool moved = carry_up();
    moved = carry_errors() || moved;
    moved = carry_down() || moved;
    if (at_end()) return;
    if (!moved && !may_send()) rest();
  }
}

bool LibsshLink::State::may_send() const {
  bool pending = (session->poll_events(false) & POLLOUT) != 0;
  return !up.empty() && !pending && ssh_channel_window_size(channel) > 0;
}

// Consumes packets too, even when the stream is empty.
bool LibsshLink::State::carry_errors() {
  char buffer[4096];
  int got = ssh_channel_read_nonblocking(channel, buffer, sizeof buffer, 1);
  if (got <= 0) return false;
  std::lock_guard lock(mutex);
  errors.append({buffer, static_cast<size_t>(got)});
  return true;
}

// From the channel to the caller. libssh reopens the channel's window with every read, however much it still holds. So
// each read takes everything that libssh holds, and the next read follows when the caller has taken that: at most two
// windows are buffered for a slow caller, and sshd waits.
bool LibsshLink::State::carry_down() {
  if (down.empty()) {
    int got = ssh_channel_poll(channel, 0);
    if (got > 0) got = ssh_channel_read_nonblocking(channel, down.room(got), static_cast<uint32_t>(got), 0);
    if (got == SSH_ERROR && !ssh_channel_is_eof(channel) && !ssh_channel_is_closed(channel)) broken();
    if (got > 0) down.filled(static_cast<size_t>(got));
  }
  if (down.empty()) return false;
  ssize_t wrote = ::write(output.get(), down.bytes().data(), down.bytes().size());
  if (wrote < 0 && errno != EAGAIN && errno != EINTR) throw Interrupted{};  // the caller closed its read end
  if (wrote > 0) down.taken(static_cast<size_t>(wrote));
  return wrote > 0;
}

bool LibsshLink::State::carry_up() {
  if (up.empty() && !input_ended) {
    ssize_t got = ::read(input.get(), up.room(kPipeBytes), kPipeBytes);
    if (got > 0) up.filled(static_cast<size_t>(got));
    if (got == 0) {
      input_ended = true;
      ssh_channel_send_eof(channel);
    }
  }
  // Do not write while libssh still holds bytes that the socket did not accept: its buffer would grow without bound.
  if ((session->poll_events(false) & POLLOUT) != 0) ssh_blocking_flush(session->get(), 0);
  if (up.empty() || (session->poll_events(false) & POLLOUT) != 0) return false;
  int sent = ssh_channel_write(channel, up.bytes().data(), static_cast<uint32_t>(up.bytes().size()));
  if (sent == SSH_ERROR) {
    // A command that has ended accepts no more input; its output still arrives.
    up.taken(up.bytes().size());
    input_ended = true;
  }
  if (sent > 0) up.taken(static_cast<size_t>(sent));
  return sent > 0;
}

bool LibsshLink::State::at_end() {
  bool ended = ssh_channel_is_eof(channel) || ssh_channel_is_closed(channel);
  if (!ended || !down.empty() || ssh_channel_poll(channel, 0) > 0) return false;
  while (carry_errors()) {
  }
  ssh_channel_get_exit_status(channel);  // reads no longer consume packets once the output has ended
  if (ssh_channel_is_closed(channel) || !ssh_is_connected(session->get())) return true;
  {
    std::lock_guard lock(mutex);
    if (cause) return true;
  }
  if (status_deadline.is_never()) status_deadline = Deadline::after(kStatusTimeout);
  return status_deadline.passed();
}

void LibsshLink::State::rest() {
  if (!ssh_is_connected(session->get()) && !ssh_channel_is_eof(channel)) broken();
  std::vector<pollfd> polls = {{ssh_get_fd(session->get()), session->poll_events(true), 0},
                               {up.empty() && !input_ended ? input.get() : -1, POLLIN, 0},
                               {output.get(), static_cast<short>(down.empty() ? 0 : POLLOUT), 0}};
  interrupt.wait(polls, status_deadline);
  if ((polls[2].revents & POLLERR) != 0) throw Interrupted{};  // the caller closed its end
}

void LibsshLink::State::broken() const {
  throw ConnectError{
      {.phase = "connection", .text = fmt::format("lost the connection to {}: {}", target.host, session->error())}};
}

LibsshLink::LibsshLink(const SshTarget& target, const std::vector<std::string>& argv, const SshOptions& options)
    : LibsshLink(target, argv, options, std::make_shared<State>()) {}

LibsshLink::LibsshLink(const SshTarget& target, const std::vector<std::string>& argv, const SshOptions& options,
                       std::shared_ptr<State> state)
    : ThreadedLink(state), state_(std::move(state)) {
  DSL_CHECK(!argv.empty(), "a link needs a command");
  Pipe in = make_pipe("to " + target.host, O_NONBLOCK), out = make_pipe("from " + target.host, O_NONBLOCK);
  state_->input = std::move(in.read);
  state_->output = std::move(out.write);
  ends_ = {std::move(in.write), std::move(out.read)};
  state_->target = target;
  state_->options = options;
  state_->program = argv[0];
  state_->command = remote_command(argv);
  LiveLinks::instance().add(state_);
  try {
    start_link_thread([state = state_] {
      state->run();
      LiveLinks::instance().remove(state.get());
    });
  } catch (...) {
    LiveLinks::instance().remove(state_.get());
    throw;
  }
}

LibsshLink::~LibsshLink() {
  kill();
}

void LibsshLink::kill() {
  std::lock_guard lock(state_->mutex);
  if (state_->done) return;
  state_->killed = true;
  state_->interrupt.set();
}

}  // namespace dslaunch::spawn
