// The store over a connection. Callers' threads send; one reader thread receives, answers waiting callers and runs the
// callbacks for lost ranks. Every member may be called from any thread.
#pragma once
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "rendezvous/store.hpp"
#include "rendezvous/store_server.hpp"
#include "rendezvous/store_state.hpp"
#include "rendezvous/stream_socket.hpp"

namespace dslaunch::rendezvous {

struct StoreAddress {
  std::string host;
  uint16_t port = 0;
  std::vector<uint8_t> token;
  int serving_rank = -1;  // the rank whose process serves the store; -1: an agent serves it
};

// Connects and proves the token; retries until the deadline while nothing listens there.
UniqueFd join_store(const StoreAddress& address, const LaunchEnv& env, Deadline deadline);

// The server speaks our protocol but holds a different token. Thrown in place of a plain UserError(69), for callers
// that can explain the cause better.
class TokenRefused : public UserError {
 public:
  using UserError::UserError;
};

// One attempt of join_store. Throws where another attempt cannot help, and throws PeerError where another attempt may
// do harm: the connection ended after the proof was sent.
Result<UniqueFd, ConnectFailure> try_to_join(const StoreAddress& address, const LaunchEnv& env, Deadline deadline);

// Sleeps between two attempts, longer each time.
class RetryPause {
 public:
  void wait(Deadline deadline);

 private:
  std::chrono::milliseconds next_{10};
};

class TcpStore final : public Store {
 public:
  // `server`: the store's server if this process serves it; destroyed after this store.
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

  std::mutex mutex_;  // guards the members below
  std::condition_variable answered_;
  std::map<uint32_t, std::optional<Answer>> requests_;
  std::map<std::string, uint32_t> unanswered_barriers_;  // by name: the caller stopped waiting for the store
  uint32_t next_request_ = 1;
  std::optional<std::string> broken_;  // why the connection is unusable
  bool server_left_ = false, left_ = false, stopping_ = false;
  std::vector<LostRank> losses_;
  std::vector<Listener> listeners_;

  std::thread reader_;
};

}  // namespace dslaunch::rendezvous
