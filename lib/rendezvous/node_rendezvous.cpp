#include "rendezvous/node_rendezvous.hpp"

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
  Deadline deadline = Deadline::after(kHandshakeTime);
  std::string input;
  bool greeted = false;

  size_t expected() const { return greeted ? wire::kClientProofBytes : wire::kHelloBytes; }
};

enum class Progress { kMore, kDrop, kJoined };

const char* describe_refusal(wire::Admission refusal, bool have_token) {
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

void log_refusal(wire::Admission refusal, const wire::ClientProof& claim, bool have_token) {
  if (refusal == wire::Admission::kWrongVersion) {
    return log::warning("refused a connection of another version of dslaunch: install the same on all hosts");
  }
  log::warning("refused a connection that claims to be node rank {} of {} ({})", claim.rank, claim.world_size,
               describe_refusal(refusal, have_token));
}

class NodeRendezvous {
 public:
  NodeRendezvous(const std::vector<uint8_t>& token, int num_nodes) : token_(token), num_nodes_(num_nodes) {}

  bool complete() const { return static_cast<int>(joined_.size()) == num_nodes_ - 1; }
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int node = 1; node < num_nodes_; ++node) {
      if (joined_.count(node) == 0) ranks.push_back(node);
    }
    return ranks;
  }
  std::vector<JoinedNode> take() {
    std::vector<JoinedNode> nodes;
    for (auto& [node, fd] : joined_) nodes.push_back({node, std::move(fd)});
    return nodes;
  }

  void turn(int listener, Deadline until) {
    std::vector<pollfd> polls{{listener, POLLIN, 0}};
    for (const auto& unknown_peer : unknown_peers_) {
      polls.push_back({unknown_peer.fd.get(), POLLIN, 0});
      until = std::min(until, unknown_peer.deadline);
    }
    for (const auto& [node, fd] : joined_) polls.push_back({fd.get(), POLLRDHUP, 0});
    if (::poll(polls.data(), polls.size(), until.poll_timeout()) < 0) return;
    remove_disconnected(polls);
    size_t index = 1;
    for (auto it = unknown_peers_.begin(); it != unknown_peers_.end(); ++index) {
      Progress progress = polls[index].revents != 0 ? receive(*it) : Progress::kMore;
      bool over = progress != Progress::kMore || it->deadline.passed();
      it = over ? unknown_peers_.erase(it) : std::next(it);
    }
    if (polls[0].revents != 0) accept_one(listener);
  }

 private:
  // A restarted node may take the place of one that is gone. The entries of joined_ are the last ones in `polls`.
  void remove_disconnected(const std::vector<pollfd>& polls) {
    size_t index = polls.size() - joined_.size();
    for (auto it = joined_.begin(); it != joined_.end(); ++index) {
      const bool gone = polls[index].revents != 0;
      if (gone) log::info("node rank {} has disconnected", it->first);
      it = gone ? joined_.erase(it) : std::next(it);
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
    if (unknown_peers_.size() >= kMaxUnknownPeers) unknown_peers_.pop_front();
    unknown_peers_.push_back({std::move(fd), ServerHandshake(token_, static_cast<uint32_t>(num_nodes_))});
  }

  Progress receive(UnknownPeer& unknown_peer) {
    char buffer[512];
    size_t want = unknown_peer.expected() - unknown_peer.input.size();
    ssize_t got = ::recv(unknown_peer.fd.get(), buffer, std::min(want, sizeof buffer), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Progress::kMore;
    if (got <= 0) return Progress::kDrop;
    unknown_peer.input.append(buffer, got);
    if (unknown_peer.input.size() < unknown_peer.expected()) return Progress::kMore;
    try {
      return unknown_peer.greeted ? check(unknown_peer) : greet(unknown_peer);
    } catch (const wire::WireError&) {
      return Progress::kDrop;
    }
  }

  Progress greet(UnknownPeer& unknown_peer) {
    unknown_peer.greeted = true;
    const bool told = answer(unknown_peer, unknown_peer.handshake.accept_hello(unknown_peer.input));
    unknown_peer.input.clear();
    return told ? Progress::kMore : Progress::kDrop;
  }

  Progress check(UnknownPeer& unknown_peer) {
    auto [admission, claim] = unknown_peer.handshake.check_proof(unknown_peer.input);
    const int node = static_cast<int>(claim.rank);
    if (admission == wire::Admission::kAdmitted && node == 0) admission = wire::Admission::kWrongWorld;
    if (admission == wire::Admission::kAdmitted && joined_.contains(node)) admission = wire::Admission::kRankTaken;
    const bool told = answer(unknown_peer, unknown_peer.handshake.answer(admission));
    if (admission != wire::Admission::kAdmitted) log_refusal(admission, claim, !token_.empty());
    if (admission != wire::Admission::kAdmitted || !told) return Progress::kDrop;
    joined_[node] = std::move(unknown_peer.fd);
    return Progress::kJoined;
  }

  // Sends a fixed block into an empty socket buffer: if it does not fit, the peer is not a client of ours.
  static bool answer(const UnknownPeer& unknown_peer, const std::string& block) {
    return ::send(unknown_peer.fd.get(), block.data(), block.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(block.size());
  }

  const std::vector<uint8_t>& token_;
  const int num_nodes_;
  std::list<UnknownPeer> unknown_peers_;
  std::map<int, UniqueFd> joined_;  // by node rank
};

Deadline deadline_of(std::optional<std::chrono::milliseconds> time) {
  return time ? Deadline::after(*time) : Deadline::never();
}

// The peer is node rank 0 before its job, or the store of a running job: neither says which, and no token is shown.
[[noreturn]] void throw_token_refused(const MasterEndpoint& master) {
  throw TokenRefused(
      ExitCode::kUnavailable,
      fmt::format("node rank {}: the dslaunch at {}:{} refused the token: {}. Set DSLAUNCH_TOKEN to the same value on "
                  "every node "
                  "of the job; if that port is another job's, choose another --master_port on every node",
                  master.node_rank, master.host, master.port,
                  master.token.empty() ? "DSLAUNCH_TOKEN is not set here, and it has one"
                                       : "DSLAUNCH_TOKEN is set here, and it has another one or none"));
}

// A node that gets no answer from node rank 0 after its proof may try again: node rank 0 removes nodes that are gone.
Result<UniqueFd, ConnectFailure> try_to_join_master(const MasterEndpoint& master, Deadline deadline) {
  LaunchEnv self;
  self.rank = master.node_rank;
  self.world_size = master.num_nodes;
  try {
    return try_to_join({master.host, master.port, master.token, -1}, self, deadline);
  } catch (const TokenRefused&) {
    throw_token_refused(master);
  } catch (const PeerError& error) {
    return Failure{ConnectFailure{.message = error.what(), .reached = true}};
  }
}

}  // namespace

std::vector<JoinedNode> await_nodes(int listener, const std::vector<uint8_t>& token, int num_nodes, Deadline deadline,
                                    const std::function<void(const std::vector<int>&)>& on_wait) {
  NodeRendezvous meeting(token, num_nodes);
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

UniqueFd connect_to_master(const MasterEndpoint& master, Deadline deadline, const std::function<void()>& on_wait) {
  Deadline news = Deadline::after(kNewsInterval), lost = deadline_of(master.lost_after), refusals = Deadline::never();
  RetryPause pause;
  for (;;) {
    auto joined = try_to_join_master(master, std::min({deadline, news, lost}));
    if (joined.ok()) return *std::move(joined);
    const ConnectFailure& failure = joined.error();
    if (failure.reached) lost = deadline_of(master.lost_after);
    if (!failure.refused) refusals = Deadline::never();
    if (failure.refused && master.lost_after) refusals = std::min(refusals, Deadline::after(kSteadyRefusal));
    if (lost.passed() || refusals.passed()) {
      throw UserError(ExitCode::kUnavailable,
                      fmt::format("node rank 0 ({}:{}) exited between two attempts of the job ({}): its own messages "
                                  "say why",
                                  master.host, master.port, failure.message));
    }
    if (deadline.passed()) {
      throw TimeoutError(
          fmt::format("node rank {}: node rank 0 does not answer at {}:{} ({}). Is the same command started on node "
                      "rank 0, are --master_addr and --master_port the same, does a firewall block the port?",
                      master.node_rank, master.host, master.port, failure.message));
    }
    if (news.passed()) {
      on_wait();
      news = Deadline::after(kNewsInterval);
    }
    pause.wait(deadline);
  }
}

}  // namespace dslaunch::rendezvous
