// The store as a rank sees it: few verbs, each with a deadline. Thread-safe. docs/wire.md describes the bytes.
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
  // Value if the key is there now.
  virtual std::optional<std::string> try_get(const std::string& key, Deadline deadline) = 0;
  // Adds to a decimal counter (starts at 0) and returns the new value.
  virtual int64_t add(const std::string& key, int64_t amount, Deadline deadline) = 0;
  // Sets to `desired` if the value equals `expected` (empty expected also matches a missing key); returns the value
  // after.
  virtual std::string compare_and_set(const std::string& key, const std::string& expected, const std::string& desired,
                                      Deadline deadline) = 0;
  // Takes away all keys that begin with `prefix` (not empty); returns how many. For what nobody will ask for again: a
  // store that only grows is full one day.
  virtual int64_t erase(const std::string& prefix, Deadline deadline) = 0;
  // All `count` ranks meet; a time-out names the ranks that have not come. A name may be used again (rounds are
  // counted). Who comes again after a time-out comes to the same round, also where the store did not answer; who does
  // not, must not use that name again.
  virtual void barrier(const std::string& name, int count, Deadline deadline) = 0;
  // Tells everybody that this rank stops and why; the connection may close afterwards.
  virtual void report_failure(const std::string& reason) = 0;
  // This rank has finished well: its connection's end is no loss.
  virtual void leave() = 0;
  // Called on the client's own thread, at most once a rank, when another rank's connection ends without leave().
  // What was known before registering is told as well. The callback must not call the store and may run until the store
  // is destroyed.
  virtual void on_peer_lost(std::function<void(const LostRank&)> callback) = 0;
};

// Connects as env.rank; proves env.token; retries until the deadline while nobody listens yet. When env.agent_store is
// false and env.rank is 0, serves the store in this process first. A world of one without a port gets an in-process
// store.
std::unique_ptr<Store> connect_store(const LaunchEnv& env, Deadline deadline);

}  // namespace dslaunch::rendezvous
