// The store as a rank sees it: a few operations, each with a deadline. Thread-safe. docs/wire.md describes the bytes.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "rendezvous/launch_env.hpp"

namespace dslaunch::rendezvous {

struct LostRank {
  int rank = -1;
  std::string host;
  std::string reason;  // "connection closed", or the text the rank gave to report_failure
};

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value, Deadline deadline) = 0;
  // Waits for the key. Throws TimeoutError naming the key and, where known, the ranks that are missing.
  virtual std::string get(const std::string& key, Deadline deadline) = 0;
  // The value if the key exists now.
  virtual std::optional<std::string> try_get(const std::string& key, Deadline deadline) = 0;
  // Adds to a decimal counter (starts at 0) and returns the new value.
  virtual int64_t add(const std::string& key, int64_t amount, Deadline deadline) = 0;
  // Sets to `desired` if the value equals `expected` (an empty `expected` also matches a missing key); returns the
  // value after the call.
  virtual std::string compare_and_set(const std::string& key, const std::string& expected, const std::string& desired,
                                      Deadline deadline) = 0;
  // Removes all keys that begin with `prefix` (not empty); returns how many. For keys that no rank will read again: a
  // store that only grows fills up eventually.
  virtual int64_t erase(const std::string& prefix, Deadline deadline) = 0;
  // Waits until all `count` ranks arrive; a time-out names the ranks that have not arrived. A name may be used again
  // (rounds are counted). A rank that calls again after a time-out joins the same round, even if the store did not
  // answer; a rank that gives up after a time-out must not use that name again.
  virtual void barrier(const std::string& name, int count, Deadline deadline) = 0;
  // Tells all ranks that this rank stops and why; the connection may close afterwards.
  virtual void report_failure(const std::string& reason) = 0;
  // This rank has finished successfully: the end of its connection is not a loss.
  virtual void leave() = 0;
  // Called on the client's own thread, at most once per rank, when another rank's connection ends without leave().
  // Losses known before registration are reported as well. The callback must not call the store and may run until the
  // store is destroyed.
  virtual void on_peer_lost(std::function<void(const LostRank&)> callback) = 0;
};

// Connects as env.rank; proves env.token; retries until the deadline while nothing listens yet. When env.agent_store is
// false and env.rank is 0, serves the store in this process first. A world size of one without a port gets an
// in-process store.
std::unique_ptr<Store> connect_store(const LaunchEnv& env, Deadline deadline);

}  // namespace dslaunch::rendezvous
