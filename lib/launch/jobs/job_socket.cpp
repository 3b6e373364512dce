#include "launch/jobs/job_socket.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launch/records/socket_path.hpp"

namespace dslaunch::launch {
namespace {

constexpr size_t kMaxClients = 64;
constexpr size_t kPieceBytes = 64U << 10;
// Limit on answers that a client has requested and does not read.
constexpr size_t kMaxUnreadBytes = 1U << 20;

UniqueFd open_reserve_fd() {
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

JobSocket::JobSocket(std::string path, ConsoleLog& console)
    : path_(std::move(path)), console_(console), listener_(listen_at(path_)), reserve_fd_(open_reserve_fd()) {}

JobSocket::~JobSocket() {
  ::unlink(path_.c_str());
}

void JobSocket::add_to(PollSet& polls) {
  listener_place_ = polls.add(listener_.get(), POLLIN);
  bool attached = std::any_of(clients_.begin(), clients_.end(), [](const Client& client) { return client.attached; });
  if (attached) console_.wake_when_written();  // before reading its size
  for (auto& client : clients_) {
    short events = wants_to_write(client) ? POLLIN | POLLOUT : POLLIN;
    client.index = polls.add(client.connection.get(), events);
  }
}

// While a part of the console is being read there is nothing to write; the file thread wakes the loop when the part is
// there.
bool JobSocket::wants_to_write(const Client& client) const {
  if (client.sent < client.out.size()) return true;
  if (client.part) return client.part->there;
  return wants_part(client) || (!end_message_.empty() && !client.has_end_message);
}

bool JobSocket::wants_part(const Client& client) const {
  return client.attached && client.position < console_.size();
}

std::vector<StopRequest> JobSocket::serve(const PollSet& polls, const Status& status) {
  std::vector<StopRequest> stops;
  std::erase_if(clients_, [&](Client& client) {
    return polls.ready(client.index) && !(receive(client, status, stops) && send(client));
  });
  if (polls.ready(listener_place_)) accept_clients();
  return stops;
}

void JobSocket::accept_clients() {
  for (;;) {
    UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!connection.valid()) {
      if (errno == EMFILE || errno == ENFILE) reject_one_client();
      return;
    }
    // The socket's mode already keeps other users out; root can bypass it, and modes of directories may be changed.
    if (!peer_is_this_user(connection)) continue;
    make_room();
    if (clients_.size() >= kMaxClients) continue;
    Client& client = clients_.emplace_back();
    client.number = ++num_clients_;
    client.connection = std::move(connection);
  }
}

// A client left in the queue would wake the loop again and again.
void JobSocket::reject_one_client() {
  reserve_fd_.reset();
  UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)).reset();
  reserve_fd_ = open_reserve_fd();
}

// Clients that have connected and sent nothing are dropped first.
void JobSocket::make_room() {
  if (clients_.size() < kMaxClients) return;
  auto silent = std::find_if(clients_.begin(), clients_.end(), [](const Client& client) { return !client.asked; });
  if (silent != clients_.end()) clients_.erase(silent);
}

bool JobSocket::receive(Client& client, const Status& status, std::vector<StopRequest>& stops) {
  char buffer[kMaxRequest];
  ssize_t got = ::recv(client.connection.get(), buffer, sizeof buffer, 0);
  if (got == 0) return false;
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  client.in.append(buffer, static_cast<size_t>(got));
  for (size_t end; (end = client.in.find('\n')) != std::string::npos; client.in.erase(0, end + 1)) {
    if (!answer(client, std::string_view(client.in).substr(0, end), status, stops)) return false;
  }
  return client.in.size() < kMaxRequest && client.out.size() - client.sent < kMaxUnreadBytes;
}

// False: the client sent an invalid request.
bool JobSocket::answer(Client& client, std::string_view line, const Status& status, std::vector<StopRequest>& stops) {
  auto request = decode_request(line);
  if (!request) {
    client.out += encode_answer(Refused{"not a request of this version of dslaunch"});
    send(client);
    return false;
  }
  client.asked = true;
  if (std::holds_alternative<StatusRequest>(*request)) client.out += encode_answer(StatusAnswer{status()});
  if (const auto* attach = std::get_if<AttachRequest>(&*request)) {
    client.attached = true;
    client.position = attach->from;
  }
  if (const auto* stop = std::get_if<StopRequest>(&*request)) {
    stops.push_back(*stop);
    client.out += encode_answer(Accepted{});
  }
  if (const auto* stacks = std::get_if<StacksRequest>(&*request)) stacks_requests_.push_back({client.number, *stacks});
  if (std::holds_alternative<RankStatusRequest>(*request)) rank_status_requests_.push_back(client.number);
  return true;
}

void JobSocket::answer(uint64_t number, const JobAnswer& answer) {
  for (auto& client : clients_) {
    if (client.number == number) client.out += encode_answer(answer);
  }
}

bool JobSocket::send(Client& client) {
  // Bounded per turn: a fast reader must not starve the rest of the loop.
  for (int round = 0; round < 4; ++round) {
    if (client.sent == client.out.size()) {
      fill(client);
      if (client.out.empty()) return true;
    }
    ssize_t wrote =
        ::send(client.connection.get(), client.out.data() + client.sent, client.out.size() - client.sent, MSG_NOSIGNAL);
    if (wrote < 0) return errno == EAGAIN || errno == EINTR;
    client.sent += static_cast<size_t>(wrote);
  }
  return true;
}

// Everything queued has been sent: queues the next piece of the console, and after its end the last message.
void JobSocket::fill(Client& client) {
  client.out.clear();
  client.sent = 0;
  if (!client.part && wants_part(client)) client.part = console_.fetch(client.position, kPieceBytes);
  if (client.part) {
    if (!client.part->there) return;
    std::string bytes = std::move(std::exchange(client.part, nullptr)->bytes);
    if (bytes.empty()) {  // the file was truncated, or it cannot be read
      client.position = console_.size();
      return;
    }
    uint64_t at = client.position;
    client.position += bytes.size();
    client.out = encode_answer(ConsolePiece{at, std::move(bytes)});
  } else if (!end_message_.empty() && !client.has_end_message) {
    client.out = end_message_;
    client.has_end_message = true;
  }
}

void JobSocket::end(const JobEnd& end) {
  end_message_ = encode_answer(EndAnswer{end});
}

bool JobSocket::has_unsent() const {
  return std::any_of(clients_.begin(), clients_.end(),
                     [&](const Client& client) { return client.part != nullptr || wants_to_write(client); });
}

}  // namespace dslaunch::launch
