#include "rendezvous/tcp_store.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/wait_until.hpp"
#include "rendezvous/stream_socket.hpp"

namespace dslaunch::rendezvous {

namespace {

constexpr std::chrono::milliseconds kAnswerGrace{1500};
constexpr std::chrono::milliseconds kLastWords{2000};  // time limit of leave() and report_failure()
constexpr std::chrono::seconds kOthersMayFinish{10};   // how long a serving rank waits for the others to leave

// For waits that the server itself times out: only after the grace period is the server presumed dead.
Deadline with_grace(Deadline deadline) {
  return deadline.is_never() ? deadline : Deadline::after(deadline.left() + kAnswerGrace);
}

uint64_t timeout_ms(Deadline deadline) {
  return deadline.is_never() ? wire::kNoTimeout : static_cast<uint64_t>(deadline.left().count());
}

void check_sizes(const std::string& key, size_t value_bytes) {
  DSL_CHECK(key.size() <= wire::kMaxKeyBytes,
            fmt::format("a store key has {} bytes, more than {}", key.size(), wire::kMaxKeyBytes));
  DSL_CHECK(value_bytes <= wire::kMaxValueBytes, fmt::format("the value of store key '{}' has {} bytes, more than {}",
                                                             key, value_bytes, wire::kMaxValueBytes));
}

std::string body_of(Answer answer, const std::string& what) {
  switch (answer.status) {
    case wire::Status::kOk:
      return std::move(answer.body);
    case wire::Status::kTimeout:
      throw TimeoutError(answer.body);
    case wire::Status::kRefused:
      throw Error(ExitCode::kInternal, "the store refused the " + what + ": " + answer.body);
    case wire::Status::kPeerLost:
      break;
  }
  auto lost = decode_lost_rank(answer.body);
  throw PeerError(lost.rank, lost.host, what, lost.reason);
}

}  // namespace

TcpStore::TcpStore(UniqueFd joined, StoreAddress address, std::unique_ptr<StoreServer> server)
    : address_(std::move(address)),
      server_(std::move(server)),
      fd_(std::move(joined)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_.valid()) throw SystemError("eventfd", "(store client)");
  reader_ = std::thread([this] { read_frames(); });
}

TcpStore::~TcpStore() {
  // Our own server is about to say goodbye to all ranks; they must hear first that this rank did not leave well.
  if (server_ && !left_) report_failure("connection closed");
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_reader();
  reader_.join();
  ::shutdown(fd_.get(), SHUT_RDWR);
  if (server_ && left_) server_->wait_until_all_left(Deadline::after(kOthersMayFinish));
}

void TcpStore::set(const std::string& key, const std::string& value, Deadline deadline) {
  check_sizes(key, value.size());
  call(wire::Type::kSet, wire::Writer().text(key).text(value).take(), "set of key '" + key + "'", deadline);
}

std::string TcpStore::get(const std::string& key, Deadline deadline) {
  check_sizes(key, 0);
  auto body = call(wire::Type::kGet, wire::Writer().text(key).u64(timeout_ms(deadline)).take(),
                   "wait for key '" + key + "'", with_grace(deadline));
  return wire::Reader(body).text(wire::kMaxValueBytes);
}

std::optional<std::string> TcpStore::try_get(const std::string& key, Deadline deadline) {
  check_sizes(key, 0);
  auto body = call(wire::Type::kTryGet, wire::Writer().text(key).take(), "look for key '" + key + "'", deadline);
  wire::Reader reader(body);
  bool present = reader.u8() != 0;
  auto value = reader.text(wire::kMaxValueBytes);
  return present ? std::optional(std::move(value)) : std::nullopt;
}

int64_t TcpStore::add(const std::string& key, int64_t amount, Deadline deadline) {
  check_sizes(key, 0);
  auto body = call(wire::Type::kAdd, wire::Writer().text(key).i64(amount).take(), "add to key '" + key + "'", deadline);
  return wire::Reader(body).i64();
}

std::string TcpStore::compare_and_set(const std::string& key, const std::string& expected, const std::string& desired,
                                      Deadline deadline) {
  check_sizes(key, std::max(expected.size(), desired.size()));
  auto body = call(wire::Type::kCompareAndSet, wire::Writer().text(key).text(expected).text(desired).take(),
                   "compare-and-set of key '" + key + "'", deadline);
  return wire::Reader(body).text(wire::kMaxValueBytes);
}

int64_t TcpStore::erase(const std::string& prefix, Deadline deadline) {
  check_sizes(prefix, 0);
  auto body = call(wire::Type::kErase, wire::Writer().text(prefix).take(), "erase of keys '" + prefix + "*'", deadline);
  return wire::Reader(body).i64();
}

// A store that did not answer may still have counted this rank and released the others. A repeated call waits for the
// earlier answer, since a second request would start another round, which no other rank joins.
void TcpStore::barrier(const std::string& name, int count, Deadline deadline) {
  check_sizes(name, 0);
  const std::string what = "barrier '" + name + "'";
  auto earlier = take_unanswered_barrier(name);
  for (;;) {
    const uint32_t request = earlier ? *earlier : ask_at_barrier(name, count, what, deadline);
    auto answer = wait_for_answer(request, what, with_grace(deadline));
    if (!answer) {
      std::lock_guard lock(mutex_);
      unanswered_barriers_[name] = request;
      throw_no_answer(what);
    }
    const bool had_less_time = std::exchange(earlier, std::nullopt) && answer->status == wire::Status::kTimeout;
    if (had_less_time) continue;
    body_of(std::move(*answer), what);
    return;
  }
}

uint32_t TcpStore::ask_at_barrier(const std::string& name, int count, const std::string& what, Deadline deadline) {
  auto body = wire::Writer().text(name).u32(static_cast<uint32_t>(count)).u64(timeout_ms(deadline)).take();
  return ask(wire::Type::kBarrier, std::move(body), what, with_grace(deadline));
}

std::optional<uint32_t> TcpStore::take_unanswered_barrier(const std::string& name) {
  std::lock_guard lock(mutex_);
  const auto found = unanswered_barriers_.find(name);
  if (found == unanswered_barriers_.end()) return std::nullopt;
  return unanswered_barriers_.extract(found).mapped();
}

void TcpStore::report_failure(const std::string& reason) {
  try {
    auto text = std::string_view(reason).substr(0, wire::kMaxTextBytes);
    call(wire::Type::kReportFailure, wire::Writer().text(text).take(), "report of a failure",
         Deadline::after(kLastWords));
  } catch (const Error&) {
    // The end of the connection reports the same, without the reason.
  }
}

void TcpStore::leave() {
  {
    std::lock_guard lock(mutex_);
    if (left_) return;
    left_ = true;
  }
  try {
    call(wire::Type::kLeave, {}, "leave", Deadline::after(kLastWords));
  } catch (const Error&) {
    // No server is left to notify.
  }
}

void TcpStore::on_peer_lost(std::function<void(const LostRank&)> callback) {
  {
    std::lock_guard lock(mutex_);
    listeners_.push_back({std::move(callback), 0});
  }
  wake_reader();
}

std::string TcpStore::call(wire::Type type, std::string body, const std::string& what, Deadline deadline) {
  const uint32_t request = ask(type, std::move(body), what, deadline);
  if (auto answer = wait_for_answer(request, what, deadline)) return body_of(std::move(*answer), what);
  std::lock_guard lock(mutex_);
  requests_.erase(request);
  throw_no_answer(what);
}

uint32_t TcpStore::ask(wire::Type type, std::string body, const std::string& what, Deadline deadline) {
  uint32_t request = 0;
  {
    std::lock_guard lock(mutex_);
    if (broken_) throw_broken(what);
    request = next_request_++;
    requests_.emplace(request, std::nullopt);
  }
  send_frame(wire::encode(wire::Frame{type, request, std::move(body)}), what, deadline);
  return request;
}

// nullopt: timed out, and the request is still open. Throws PeerError where no answer can arrive any more.
std::optional<Answer> TcpStore::wait_for_answer(uint32_t request, const std::string& what, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const bool in_time = wait_until(answered_, lock, deadline, [&] { return requests_[request].has_value() || broken_; });
  if (!in_time) return std::nullopt;
  auto answer = requests_.extract(request).mapped();
  if (!answer) throw_broken(what);
  return answer;
}

void TcpStore::throw_no_answer(const std::string& what) const {
  throw TimeoutError(fmt::format("the store at {}:{} did not answer in time: {}", address_.host, address_.port, what));
}

void TcpStore::send_frame(const std::string& bytes, const std::string& what, Deadline deadline) {
  std::lock_guard sending(send_mutex_);
  auto outcome = send_all(fd_.get(), bytes, deadline);
  if (outcome == IoOutcome::kDone) return;
  // Half a frame may have been sent: nothing can follow it on this connection.
  if (outcome == IoOutcome::kTimedOut) ::shutdown(fd_.get(), SHUT_RDWR);
  std::lock_guard lock(mutex_);
  if (!broken_) break_connection(outcome == IoOutcome::kTimedOut ? "stopped accepting data" : "closed the connection");
  throw_broken(what);
}

void TcpStore::throw_broken(const std::string& what) const {
  throw PeerError(address_.serving_rank, address_.serving_rank >= 0 ? address_.host : "", what,
                  fmt::format("the store at {}:{} {}", address_.host, address_.port, broken_.value()));
}

// Requires mutex_.
void TcpStore::break_connection(const std::string& reason) {
  broken_ = server_left_ ? "has ended with the rank or agent that served it" : reason;
  answered_.notify_all();
  if (server_left_ || left_ || stopping_) return;
  losses_.push_back({address_.serving_rank, address_.host, "the store that it served " + *broken_});
}

void TcpStore::wake_reader() {
  uint64_t one = 1;
  [[maybe_unused]] auto written = ::write(wake_.get(), &one, sizeof one);  // EAGAIN: the reader is awake anyway
}

void TcpStore::read_frames() {
  std::string buffer;
  try {
    while (wait_for_input()) accept_bytes(buffer);
  } catch (const std::exception& error) {
    std::lock_guard lock(mutex_);
    if (!broken_) break_connection(std::string("sent an invalid message: ") + error.what());
  }
  deliver_losses();
  // Listeners that register later still receive the known losses.
  for (;;) {
    pollfd entry{wake_.get(), POLLIN, 0};
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    ::poll(&entry, 1, -1);
    uint64_t count = 0;
    [[maybe_unused]] auto got = ::read(wake_.get(), &count, sizeof count);
    deliver_losses();
  }
}

// False when the connection is broken or the store is stopping.
bool TcpStore::wait_for_input() {
  for (;;) {
    deliver_losses();
    {
      std::lock_guard lock(mutex_);
      if (stopping_ || broken_) return false;
    }
    pollfd entries[2] = {{fd_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (::poll(entries, 2, -1) < 0 && errno != EINTR) throw SystemError("poll", "(store client)");
    if (entries[1].revents) {
      uint64_t count = 0;
      [[maybe_unused]] auto got = ::read(wake_.get(), &count, sizeof count);
    }
    if (entries[0].revents) return true;
  }
}

void TcpStore::accept_bytes(std::string& buffer) {
  constexpr size_t kPiece = 64 << 10;
  size_t before = buffer.size();
  buffer.resize(before + kPiece);
  ssize_t got = ::recv(fd_.get(), buffer.data() + before, kPiece, 0);
  buffer.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    std::string reason = got == 0 ? "closed the connection" : "is lost: " + describe_errno(errno);
    std::lock_guard lock(mutex_);
    if (!broken_) break_connection(reason);
    return;
  }
  size_t begin = 0;
  while (buffer.size() - begin >= wire::kLengthBytes) {
    std::string_view rest = std::string_view(buffer).substr(begin);
    size_t length = wire::decode_length(rest.substr(0, wire::kLengthBytes));
    if (rest.size() < wire::kLengthBytes + length) break;
    accept_frame(wire::decode(rest.substr(wire::kLengthBytes, length)));
    begin += wire::kLengthBytes + length;
  }
  buffer.erase(0, begin);
}

void TcpStore::accept_frame(const wire::Frame& frame) {
  std::lock_guard lock(mutex_);
  switch (frame.type) {
    case wire::Type::kReply: {
      uint8_t status = wire::Reader(frame.body).u8();
      if (status > static_cast<uint8_t>(wire::Status::kRefused)) throw wire::WireError("unknown status");
      auto waiting = requests_.find(frame.request);
      if (waiting == requests_.end()) return;  // its caller gave up
      waiting->second = Answer{static_cast<wire::Status>(status), frame.body.substr(1)};
      answered_.notify_all();
      return;
    }
    case wire::Type::kRankLost: {
      auto lost = decode_lost_rank(frame.body);
      auto same = [&](const LostRank& known) { return known.rank == lost.rank; };
      if (std::find_if(losses_.begin(), losses_.end(), same) == losses_.end()) losses_.push_back(std::move(lost));
      return;
    }
    case wire::Type::kServerLeaves:
      server_left_ = true;
      return;
    default:
      throw wire::WireError("a server does not send this type");
  }
}

// Runs on the reader's thread, without the lock: a callback may take long, but must not call the store.
void TcpStore::deliver_losses() {
  std::unique_lock lock(mutex_);
  for (size_t i = 0; i < listeners_.size(); ++i) {
    while (listeners_[i].next < losses_.size()) {
      LostRank lost = losses_[listeners_[i].next++];
      auto callback = listeners_[i].callback;
      lock.unlock();
      callback(lost);
      lock.lock();
    }
  }
}

}  // namespace dslaunch::rendezvous
