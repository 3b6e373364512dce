// Streams of bytes between processes: pipes on one host, connections between two. A connection delivers its bytes in
// order, in pieces and late; while the way between its hosts is cut it delivers nothing, and the rest afterwards. One
// thread.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simulation/clock.hpp"

namespace dslaunch::simulation {

class Network {
 public:
  Network(Clock& clock, Random& random) : clock_(clock), random_(random) {}

  // Something arrives at `to` later, as a packet of its own: two may overtake each other.
  void send(const std::string& from, const std::string& to, std::function<void()> arrive);
  // From one host to the other; the other direction may still work.
  void cut(const std::string& from, const std::string& to);
  void mend(const std::string& from, const std::string& to);
  bool is_cut(const std::string& from, const std::string& to) const { return cuts_.contains({from, to}); }
  Duration latency(const std::string& from, const std::string& to);
  // What waits for a mended way happens then, else at once.
  void when_open(const std::string& from, const std::string& to, std::function<void()> event);

 private:
  Clock& clock_;
  Random& random_;
  using Way = std::pair<std::string, std::string>;
  std::set<Way> cuts_;
  std::map<Way, std::vector<std::function<void()>>> waiting_;
};

// One direction of a pipe or connection.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(Clock& clock, Random& random, Network& network, std::string from, std::string to)
      : clock_(clock), random_(random), network_(network), from_(std::move(from)), to_(std::move(to)) {}

  // For both ends: something has changed that a poll may wait for.
  std::function<void()> on_readable = [] {}, on_writable = [] {};

  // How much was accepted; -1: the reader is gone.
  long write(std::string_view bytes);
  // How much was read; 0: the end; -1: nothing is there yet.
  long read(char* into, size_t most);
  void close_writer();
  void close_reader();
  // The reader gets its end now, and nothing that was on its way.
  void break_off();

  bool is_readable() const { return !arrived_.empty() || has_ended_; }
  bool at_end() const { return arrived_.empty() && has_ended_; }
  bool is_writable() const { return reader_is_gone_ || room() > 0; }
  bool reader_is_gone() const { return reader_is_gone_; }

 private:
  static constexpr size_t kCapacity = 65536;
  size_t room() const { return kCapacity - arrived_.size() - num_in_flight_; }
  void arrive_in_order(std::function<void()> what);

  Clock& clock_;
  Random& random_;
  Network& network_;
  const std::string from_, to_;
  std::string arrived_;
  size_t num_in_flight_ = 0;
  Time last_arrival_{0};
  bool writer_is_closed_ = false, has_ended_ = false, reader_is_gone_ = false;
};

}  // namespace dslaunch::simulation
