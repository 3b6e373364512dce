#include "rendezvous/node_meeting.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <list>
#include <map>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "rendezvous/handshake.hpp"
#include "rendezvous/stream_socket.hpp"
#include "rendezvous/tcp_store.hpp"

namespace dslaunch::rendezvous {
namespace {

using namespace std::chrono_literals;

constexpr auto kHandshakeTime = 5000ms;
constexpr auto kNewsInterval = 10000ms;
constexpr int kAcceptPauseMs = 100;
// Devices in between may refuse briefly, too: a firewall that reloads, a cluster's service address.
constexpr std::chrono::seconds kSteadyRefusal{3};
constexpr size_t kMaxUnknownPeers = 256;  // the oldest is dropped beyond that

// A connection without proof: two fixed blocks arrive in turn.
struct UnknownPeer {
  UniqueFd fd;
  ServerHandshake handshake;
  Deadline patience = Deadline::after(kHandshakeTime);
  std::string input;
  bool greeted = false;

  size_t expected() const { return greeted ? wire::kClientProofBytes : wire::kHelloBytes; }
};

enum class Progress { kMore, kDrop, kMet };

const char* in_words(wire::Admission refusal, bool have_token) {
  switch (refusal) {
    case wire::Admission::kWrongToken:
      return have_token ? "its DSLAUNCH_TOKEN is missing or differs from ours: it belongs to another job, or "
                          "DSLAUNCH_TOKEN must be set to the same value on every node"
                        : "it has a DSLAUNCH_TOKEN and none is set here: it belongs to another job, or DSLAUNCH_TOKEN "
                          "must be set to the same value on every node";
    case wire::Admission::kRankTaken:
      return "that node is already connected";
    default:
      return "its node rank or number of nodes does not match this job";
  }
}

void tell_of_refusal(wire::Admission refusal, const wire::ClientProof& claim, bool have_token) {
  if (refusal == wire::Admission::kWrongVersion) {
    return log::warning("refused a connection of another version of dslaunch: install the same on all hosts");
  }
  log::warning("refused a connection that claims to be node rank {} of {} ({})", claim.rank, claim.world_size,
               in_words(refusal, have_token));
}

class Meeting {
 public:
  Meeting(const std::vector<uint8_t>& token, int num_nodes) : token_(token), num_nodes_(num_nodes) {}

  bool complete() const { return static_cast<int>(met_.size()) == num_nodes_ - 1; }
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int node = 1; node < num_nodes_; ++node) {
      if (met_.count(node) == 0) ranks.push_back(node);
    }
    return ranks;
  }
  std::vector<MetNode> take() {
    std::vector<MetNode> nodes;
    for (auto& [node, fd] : met_) nodes.push_back({node, std::move(fd)});
    return nodes;
  }

  void turn(int listener, Deadline until) {
    std::vector<pollfd> polls{{listener, POLLIN, 0}};
    for (const auto& stranger : strangers_) {
      polls.push_back({stranger.fd.get(), POLLIN, 0});
      until = std::min(until, stranger.patience);
    }
    for (const auto& [node, fd] : met_) polls.push_back({fd.get(), POLLRDHUP, 0});
    if (::poll(polls.data(), polls.size(), until.poll_timeout()) < 0) return;
    forget_those_gone(polls);
    size_t place = 1;
    for (auto it = strangers_.begin(); it != strangers_.end(); ++place) {
      Progress progress = polls[place].revents != 0 ? hear(*it) : Progress::kMore;
      bool over = progress != Progress::kMore || it->patience.passed();
      it = over ? strangers_.erase(it) : std::next(it);
    }
    if (polls[0].revents != 0) accept_one(listener);
  }

 private:
  // A restarted node may take the place of one that is gone. The entries of met_ are the last ones in `polls`.
  void forget_those_gone(const std::vector<pollfd>& polls) {
    size_t place = polls.size() - met_.size();
    for (auto it = met_.begin(); it != met_.end(); ++place) {
      const bool gone = polls[place].revents != 0;
      if (gone) log::info("node rank {} has disconnected", it->first);
      it = gone ? met_.erase(it) : std::next(it);
    }
  }

  // Accepts one connection per call: the listener may be blocking.
  void accept_one(int listener) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      // Without a free descriptor the connection stays in the queue and would wake us again immediately.
      if (errno == EMFILE || errno == ENFILE) ::poll(nullptr, 0, kAcceptPauseMs);
      return;
    }
    prepare_stream_socket(fd.get());
    if (strangers_.size() >= kMaxUnknownPeers) strangers_.pop_front();
    strangers_.push_back({std::move(fd), ServerHandshake(token_, static_cast<uint32_t>(num_nodes_))});
  }

  Progress hear(UnknownPeer& stranger) {
    char buffer[512];
    size_t want = stranger.expected() - stranger.input.size();
    ssize_t got = ::recv(stranger.fd.get(), buffer, std::min(want, sizeof buffer), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Progress::kMore;
    if (got <= 0) return Progress::kDrop;
    stranger.input.append(buffer, got);
    if (stranger.input.size() < stranger.expected()) return Progress::kMore;
    try {
      return stranger.greeted ? judge(stranger) : greet(stranger);
    } catch (const wire::WireError&) {
      return Progress::kDrop;
    }
  }

  Progress greet(UnknownPeer& stranger) {
    stranger.greeted = true;
    const bool told = answer(stranger, stranger.handshake.accept_hello(stranger.input));
    stranger.input.clear();
    return told ? Progress::kMore : Progress::kDrop;
  }

  Progress judge(UnknownPeer& stranger) {
    auto [admission, claim] = stranger.handshake.judge_proof(stranger.input);
    const int node = static_cast<int>(claim.rank);
    if (admission == wire::Admission::kAdmitted && node == 0) admission = wire::Admission::kWrongWorld;
    if (admission == wire::Admission::kAdmitted && met_.contains(node)) admission = wire::Admission::kRankTaken;
    const bool told = answer(stranger, stranger.handshake.answer(admission));
    if (admission != wire::Admission::kAdmitted) tell_of_refusal(admission, claim, !token_.empty());
    if (admission != wire::Admission::kAdmitted || !told) return Progress::kDrop;
    met_[node] = std::move(stranger.fd);
    return Progress::kMet;
  }

  // Sends a fixed block into an empty socket buffer: if it does not fit, the peer is not a client of ours.
  static bool answer(const UnknownPeer& stranger, const std::string& block) {
    return ::send(stranger.fd.get(), block.data(), block.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(block.size());
  }

  const std::vector<uint8_t>& token_;
  const int num_nodes_;
  std::list<UnknownPeer> strangers_;
  std::map<int, UniqueFd> met_;  // by node rank
};

Deadline deadline_of(std::optional<std::chrono::milliseconds> time) {
  return time ? Deadline::after(*time) : Deadline::never();
}

// The peer is node rank 0 before its job, or the store of a running job: neither says which, and no token is shown.
[[noreturn]] void throw_token_refused(const MasterEndpoint& way) {
  throw TokenRefused(
      ExitCode::kUnavailable,
      fmt::format("node rank {}: the dslaunch at {}:{} refused the token: {}. Set DSLAUNCH_TOKEN to the same value on "
                  "every node "
                  "of the job; if that port is another job's, choose another --master_port on every node",
                  way.node_rank, way.host, way.port,
                  way.token.empty() ? "DSLAUNCH_TOKEN is not set here, and it has one"
                                    : "DSLAUNCH_TOKEN is set here, and it has another one or none"));
}

// A node that gets no answer from node rank 0 after its proof may try again: node rank 0 removes nodes that are gone.
Result<UniqueFd, ConnectFailure> try_to_meet(const MasterEndpoint& way, Deadline deadline) {
  LaunchEnv self;
  self.rank = way.node_rank;
  self.world_size = way.num_nodes;
  try {
    return try_to_join({way.host, way.port, way.token, -1}, self, deadline);
  } catch (const TokenRefused&) {
    throw_token_refused(way);
  } catch (const PeerError& error) {
    return Failure{ConnectFailure{.message = error.what(), .reached = true}};
  }
}

}  // namespace

std::vector<MetNode> meet_nodes(int listener, const std::vector<uint8_t>& token, int num_nodes, Deadline deadline,
                                const std::function<void(const std::vector<int>&)>& on_wait) {
  Meeting meeting(token, num_nodes);
  Deadline news = Deadline::after(kNewsInterval);
  while (!meeting.complete() && !deadline.passed()) {
    if (news.passed()) {
      on_wait(meeting.missing());
      news = Deadline::after(kNewsInterval);
    }
    meeting.turn(listener, std::min(deadline, news));
  }
  return meeting.take();
}

UniqueFd connect_to_master(const MasterEndpoint& way, Deadline deadline, const std::function<void()>& on_wait) {
  Deadline news = Deadline::after(kNewsInterval), lost = deadline_of(way.lost_after), refusals = Deadline::never();
  RetryPause pause;
  for (;;) {
    auto met = try_to_meet(way, std::min({deadline, news, lost}));
    if (met.ok()) return *std::move(met);
    const ConnectFailure& failure = met.error();
    if (failure.reached) lost = deadline_of(way.lost_after);
    if (!failure.refused) refusals = Deadline::never();
    if (failure.refused && way.lost_after) refusals = std::min(refusals, Deadline::after(kSteadyRefusal));
    if (lost.passed() || refusals.passed()) {
      throw UserError(
          ExitCode::kUnavailable,
          fmt::format("node rank 0 ({}:{}) exited between two attempts of the job ({}): its own messages "
                      "say why",
                      way.host, way.port, failure.message));
    }
    if (deadline.passed()) {
      throw TimeoutError(
          fmt::format("node rank {}: node rank 0 does not answer at {}:{} ({}). Is the same command started on node "
                      "rank 0, are --master_addr and --master_port the same, does a firewall block the port?",
                      way.node_rank, way.host, way.port, failure.message));
    }
    if (news.passed()) {
      on_wait();
      news = Deadline::after(kNewsInterval);
    }
    pause.wait(deadline);
  }
}

}  // namespace dslaunch::rendezvous
