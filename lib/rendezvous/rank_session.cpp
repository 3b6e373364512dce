#include "rendezvous/rank_session.hpp"

#include <algorithm>

#include "base/wait_until.hpp"
#include "rendezvous/handshake.hpp"

namespace dslaunch::rendezvous {

namespace asio = boost::asio;
using Code = boost::system::error_code;

namespace {

constexpr size_t kMaxAnnouncedLosses = 64;  // further losses add no information and would grow as the square of the
                                            // world size

std::string encode_reply(uint32_t request, const Answer& answer) {
  return wire::encode(
      wire::Frame{wire::Type::kReply, request,
                  wire::Writer().u8(static_cast<uint8_t>(answer.status)).bytes(std::string_view(answer.body)).take()});
}

}  // namespace

// hello -> proof -> frames. Until the proof is checked, a session costs only the connection's smallest buffer.
class RankSessions::Session final : public StoreConnection::Session {
 public:
  Session(RankSessions& all, StoreConnection& connection)
      : all_(all), connection_(connection), handshake_(all.token_, all.world_size_) {}

  int rank() const { return rank_; }
  const std::string& host() const { return host_; }
  StoreConnection& connection() { return connection_; }

  void welcome() { connection_.send(handshake_.answer(wire::Admission::kAdmitted)); }

  size_t accept(std::string_view input) override {
    size_t taken = 0;
    while (!refused_) {
      size_t step = accept_one(input.substr(taken));
      if (step == 0) break;
      taken += step;
    }
    return taken;
  }

  void ended(const std::string& reason) override {
    auto found = all_.by_rank_.find(rank_);
    if (found == all_.by_rank_.end() || found->second != this) return;
    all_.by_rank_.erase(found);
    if (!all_.stopping_) all_.lose(rank_, reason);
  }

 private:
  enum class Phase { kHello, kProof, kFrames };

  // Handles the first complete block or frame; returns its size in bytes, 0 when it is incomplete.
  size_t accept_one(std::string_view input) {
    switch (phase_) {
      case Phase::kHello:
        if (input.size() < wire::kHelloBytes) return 0;
        all_.registry_.count_request();
        accept_hello(input.substr(0, wire::kHelloBytes));
        return wire::kHelloBytes;
      case Phase::kProof:
        if (input.size() < wire::kClientProofBytes) return 0;
        all_.registry_.count_request();
        accept_proof(input.substr(0, wire::kClientProofBytes));
        return wire::kClientProofBytes;
      case Phase::kFrames:
        break;
    }
    if (input.size() < wire::kLengthBytes) return 0;
    size_t length = wire::decode_length(input.substr(0, wire::kLengthBytes));
    if (input.size() - wire::kLengthBytes < length) return 0;
    all_.registry_.count_request();  // before the answer: a client that has it may read the count
    accept_frame(wire::decode(input.substr(wire::kLengthBytes, length)));
    return wire::kLengthBytes + length;
  }

  void accept_hello(std::string_view block) {
    connection_.send(handshake_.accept_hello(block));
    phase_ = Phase::kProof;
  }

  void accept_proof(std::string_view block) {
    const auto [admission, claim] = handshake_.check_proof(block);
    if (admission != wire::Admission::kAdmitted) return refuse(admission);
    if (all_.state_.is_present(static_cast<int>(claim.rank))) return refuse(wire::Admission::kRankTaken);
    rank_ = static_cast<int>(claim.rank);
    host_ = claim.host;
    phase_ = Phase::kFrames;
    connection_.mark_proven();
    all_.admit(*this);
  }

  void refuse(wire::Admission why) {
    refused_ = true;
    connection_.send(handshake_.answer(why));
    connection_.close_after_sending("refused");
  }

  void accept_frame(const wire::Frame& frame) {
    switch (frame.type) {
      case wire::Type::kGet:
        return all_.wait_for_key(*this, frame);
      case wire::Type::kBarrier:
        return all_.wait_at_barrier(*this, frame);
      default:
        connection_.send(encode_reply(frame.request, answer(frame)));
    }
  }

  Answer answer(const wire::Frame& frame) {
    wire::Reader reader(frame.body);
    switch (frame.type) {
      case wire::Type::kSet: {
        std::string key = reader.text(wire::kMaxKeyBytes), value = reader.text(wire::kMaxValueBytes);
        reader.expect_end();
        return all_.state_.set(key, std::move(value));
      }
      case wire::Type::kTryGet: {
        std::string key = reader.text(wire::kMaxKeyBytes);
        reader.expect_end();
        return all_.state_.try_get(key);
      }
      case wire::Type::kAdd: {
        std::string key = reader.text(wire::kMaxKeyBytes);
        auto amount = reader.i64();
        reader.expect_end();
        return all_.state_.add(key, amount);
      }
      case wire::Type::kCompareAndSet: {
        std::string key = reader.text(wire::kMaxKeyBytes), expected = reader.text(wire::kMaxValueBytes);
        std::string desired = reader.text(wire::kMaxValueBytes);
        reader.expect_end();
        return all_.state_.compare_and_set(key, expected, desired);
      }
      case wire::Type::kErase: {
        std::string prefix = reader.text(wire::kMaxKeyBytes);
        reader.expect_end();
        return all_.state_.erase(prefix);
      }
      case wire::Type::kReportFailure: {
        std::string reason = reader.text(wire::kMaxTextBytes);
        reader.expect_end();
        return all_.lose(rank_, reason), Answer{};
      }
      case wire::Type::kLeave:
        reader.expect_end();
        return all_.leave(rank_), Answer{};
      default:
        throw wire::WireError("a client does not send this type");
    }
  }

  RankSessions& all_;
  StoreConnection& connection_;
  Phase phase_ = Phase::kHello;
  ServerHandshake handshake_;
  bool refused_ = false;
  int rank_ = -1;
  std::string host_;
};

RankSessions::RankSessions(asio::io_context& io, RankRegistry& registry, int world_size, std::vector<uint8_t> token,
                           std::vector<std::string> rank_hosts)
    : io_(io),
      registry_(registry),
      world_size_(static_cast<uint32_t>(world_size)),
      token_(std::move(token)),
      state_(world_size, std::move(rank_hosts)) {}

std::unique_ptr<StoreConnection::Session> RankSessions::open(StoreConnection& connection) {
  return std::make_unique<Session>(*this, connection);
}

void RankSessions::admit(Session& session) {
  // Before the answer: joined_ranks() must include a rank that knows it was admitted.
  state_.join(session.rank(), session.host());
  registry_.join(session.rank());
  by_rank_[session.rank()] = &session;
  session.welcome();
  for (const auto& lost : state_.lost_ranks()) {
    session.connection().send(wire::encode(wire::Frame{wire::Type::kRankLost, 0, encode_lost_rank(lost)}));
  }
}

void RankSessions::lose(int rank, const std::string& reason) {
  auto news = state_.lose(rank, reason);
  if (!news) return;
  registry_.leave();
  if (++announced_losses_ > kMaxAnnouncedLosses) return;
  std::string bytes = wire::encode(wire::Frame{wire::Type::kRankLost, 0, encode_lost_rank(*news)});
  for (auto sessions = by_rank_; auto& [to, session] : sessions) {
    if (to != rank) session->connection().send(bytes);
  }
}

void RankSessions::leave(int rank) {
  bool was_present = state_.is_present(rank);
  state_.leave(rank);
  if (was_present) registry_.leave();
}

void RankSessions::wait_for_key(Session& session, const wire::Frame& frame) {
  wire::Reader reader(frame.body);
  std::string key = reader.text(wire::kMaxKeyBytes);
  uint64_t timeout_ms = reader.u64();
  reader.expect_end();
  auto ticket = std::make_shared<StoreState::Ticket>(0);
  *ticket = state_.get(session.rank(), key, later(session, frame.request, ticket));
  expire_after(timeout_ms, *ticket);
}

void RankSessions::wait_at_barrier(Session& session, const wire::Frame& frame) {
  wire::Reader reader(frame.body);
  std::string name = reader.text(wire::kMaxKeyBytes);
  int count = static_cast<int>(reader.u32());
  uint64_t timeout_ms = reader.u64();
  reader.expect_end();
  auto ticket = std::make_shared<StoreState::Ticket>(0);
  *ticket = state_.barrier(session.rank(), name, count, later(session, frame.request, ticket));
  expire_after(timeout_ms, *ticket);
}

// The session may have ended when the answer comes.
StoreState::Answered RankSessions::later(Session& session, uint32_t request,
                                         const std::shared_ptr<StoreState::Ticket>& ticket) {
  return [this, ticket, request, to = session.connection().weak_from_this()](const Answer& answer) {
    timers_.erase(*ticket);
    if (auto connection = to.lock()) connection->send(encode_reply(request, answer));
  };
}

void RankSessions::expire_after(uint64_t timeout_ms, StoreState::Ticket ticket) {
  if (!ticket || timeout_ms == wire::kNoTimeout) return;
  constexpr uint64_t kCap = 30ull * 24 * 3600 * 1000;
  std::chrono::milliseconds wait(std::min(timeout_ms, kCap));
  auto& timer = timers_[ticket] = std::make_unique<asio::steady_timer>(io_, wait);
  timer->async_wait([this, ticket, wait](Code code) {
    if (code) return;
    state_.expire(ticket, static_cast<double>(wait.count()) / 1000);
  });
}

void RankSessions::announce_shutdown() {
  stopping_ = true;
  timers_.clear();
  std::string bytes = wire::encode(wire::Frame{wire::Type::kServerLeaves, 0, {}});
  for (auto sessions = by_rank_; auto& [rank, session] : sessions) {
    session->connection().send(bytes);
    session->connection().close_after_sending("the store is shutting down");
  }
}

void RankRegistry::join(int rank) {
  std::lock_guard lock(mutex_);
  joined_.insert(rank);
  ++num_connected_;
  changed_.notify_all();
}

void RankRegistry::leave() {
  std::lock_guard lock(mutex_);
  --num_connected_;
  changed_.notify_all();
}

std::vector<int> RankRegistry::joined_ranks() const {
  std::lock_guard lock(mutex_);
  return {joined_.begin(), joined_.end()};
}

bool RankRegistry::wait_until_all_left(Deadline deadline) const {
  std::unique_lock lock(mutex_);
  return wait_until(changed_, lock, deadline, [this] { return num_connected_ == 0; });
}

}  // namespace dslaunch::rendezvous
