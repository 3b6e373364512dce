// The store as torch's clients see it: their own keys, queues and waits, separate from those of our ranks. Answers as
// the libuv server of torch 2.11 does. Uses neither clock nor network: a wait ends when its keys exist or when the
// client cancels it. One thread.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "rendezvous/shared_value.hpp"
#include "rendezvous/torch_answer.hpp"
#include "rendezvous/torch_protocol.hpp"

namespace dslaunch::rendezvous {

class TorchKeySpace {
 public:
  using Client = uint64_t;  // unique for every connection

  static constexpr size_t kMaxStoredBytes = 1u << 30;

  // `wait_is_over` is called during the request that ends a client's wait, once for each wait.
  explicit TorchKeySpace(std::function<void(Client)> wait_is_over, size_t max_stored_bytes = kMaxStoredBytes)
      : wait_is_over_(std::move(wait_is_over)), max_stored_bytes_(max_stored_bytes) {}

  // Returns the answer; empty when the request has none, or when it waits. Throws wire::WireError where torch's server
  // closes the connection: for adding to a value that is not a number, and for more than the store can hold.
  TorchAnswer handle(Client client, torch_wire::Request request);
  // The client's connection has ended.
  void forget(Client client) { cancel_wait(client); }

  // The memory that a client's wait uses.
  size_t wait_bytes(Client client) const;
  // Size of values that are no longer stored, but are part of unsent answers; each value counts once.
  size_t outlived_bytes() const { return *outlived_bytes_; }

 private:
  using Ticket = uint64_t;  // orders waits by arrival
  struct Wait {
    Ticket ticket = 0;
    size_t num_missing = 0;
    size_t num_bytes = 0;
    std::vector<std::string> keys;  // keys that were missing when the wait began
  };

  bool is_there(const std::string& key) const;
  bool are_there(const std::vector<std::string>& keys) const;
  std::shared_ptr<const SharedValue> value_of(const std::string& key) const;
  void let_go(const std::shared_ptr<SharedValue>& value);
  void set(const std::string& key, std::string value);
  void append(const std::string& key, const std::string& value);
  std::string compare_set(const std::string& key, const std::string& expected, std::string desired);
  int64_t add(const std::string& key, uint64_t amount);
  bool erase(const std::string& key);
  void push(const std::string& key, std::string value);
  TorchAnswer pop(const std::string& key);
  int64_t queue_length(const std::string& key) const;
  std::string list_keys() const;
  TorchAnswer multi_get(const std::vector<std::string>& keys) const;
  void make_room(size_t added, size_t freed);

  // True when no key is missing.
  bool wait(Client client, std::vector<std::string> keys);
  void cancel_wait(Client client);
  enum class Wake { kAll, kOne };
  void wake(const std::string& key, Wake whom);

  const std::function<void(Client)> wait_is_over_;
  const size_t max_stored_bytes_;
  // Outlives this object while unsent answers still hold values.
  const std::shared_ptr<size_t> outlived_bytes_ = std::make_shared<size_t>(0);
  std::unordered_map<std::string, std::shared_ptr<SharedValue>> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;  // no queue is empty
  size_t stored_bytes_ = 0;
  std::unordered_map<Client, Wait> waits_;
  std::unordered_map<std::string, std::map<Ticket, Client>> waiting_for_;
  Ticket next_ticket_ = 1;
};

}  // namespace dslaunch::rendezvous
