// The store over a connection. Callers' threads send; one reader thread receives, answers waiting callers and runs the
// callbacks of lost ranks. Every member may be called from any thread.
#pragma once
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "rendezvous/store.hpp"
#include "rendezvous/store_server.hpp"
#include "rendezvous/store_state.hpp"

namespace dslaunch::rendezvous {

struct StoreAddress {
  std::string host;
  uint16_t port = 0;
  std::vector<uint8_t> token;
  int serving_rank = -1;  // the rank whose process serves it; -1: an agent does
};

// Connects and proves the token; retries until the deadline while nobody listens there.
UniqueFd join_store(const StoreAddress& address, const LaunchEnv& env, Deadline deadline);

// Whoever serves there, in our protocol, holds another token: throws UserError(69) of this kind, for callers who know
// better what that means.
class TokenRefused : public UserError {
 public:
  using UserError::UserError;
};

// One attempt of it. Throws where another one cannot help, and PeerError where it may do harm: the connection ended
// after the proof.
struct JoinAttempt {
  UniqueFd fd;  // not valid: `failure` says why
  std::string failure;
  bool reached = false;  // somebody took the connection
  bool refused = false;  // the host is there, and nobody listens
  bool no_way = false;   // no network of this host leads there
};
JoinAttempt try_to_join(const StoreAddress& address, const LaunchEnv& env, Deadline deadline);

// Between two attempts: longer each time.
class RetryPause {
 public:
  void wait(Deadline deadline);

 private:
  std::chrono::milliseconds next_{10};
};

class TcpStore final : public Store {
 public:
  // `server`: served by this very process; ends after this store.
  TcpStore(UniqueFd joined, StoreAddress address, std::unique_ptr<StoreServer> server);
  ~TcpStore() override;

  void set(const std::string& key, const std::string& value, Deadline deadline) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override;
  int64_t add(const std::string& key, int64_t amount, Deadline deadline) override;
  std::string compare_and_set(const std::string& key, const std::string& expected, const std::string& desired,
                              Deadline deadline) override;
  int64_t erase(const std::string& prefix, Deadline deadline) override;
  void barrier(const std::string& name, int count, Deadline deadline) override;
  void report_failure(const std::string& reason) override;
  void leave() override;
  void on_peer_lost(std::function<void(const LostRank&)> callback) override;

 private:
  struct Listener {
    std::function<void(const LostRank&)> callback;
    size_t next = 0;  // index into losses_
  };

  std::string call(wire::Type type, std::string body, const std::string& what, Deadline deadline);
  uint32_t ask(wire::Type type, std::string body, const std::string& what, Deadline deadline);
  std::optional<Answer> wait_for_answer(uint32_t request, const std::string& what, Deadline deadline);
  uint32_t ask_at_barrier(const std::string& name, int count, const std::string& what, Deadline deadline);
  std::optional<uint32_t> take_unanswered_barrier(const std::string& name);
  [[noreturn]] void throw_no_answer(const std::string& what) const;
  void send_frame(const std::string& bytes, const std::string& what, Deadline deadline);
  [[noreturn]] void throw_broken(const std::string& what) const;
  void read_frames();
  bool wait_for_input();
  void accept_bytes(std::string& buffer);
  void accept_frame(const wire::Frame& frame);
  void deliver_losses();
  void break_connection(const std::string& reason);
  void wake_reader();

  const StoreAddress address_;
  const std::unique_ptr<StoreServer> server_;
  const UniqueFd fd_;
  const UniqueFd wake_;  // eventfd

  std::mutex send_mutex_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable answered_;
  std::map<uint32_t, std::optional<Answer>> requests_;
  std::map<std::string, uint32_t> unanswered_barriers_;  // by name: whose callers gave up on the store
  uint32_t next_request_ = 1;
  std::string broken_;  // why the connection is of no use any more; empty: it works
  bool server_left_ = false, left_ = false, stopping_ = false;
  std::vector<LostRank> losses_;
  std::vector<Listener> listeners_;

  std::thread reader_;
};

}  // namespace dslaunch::rendezvous
