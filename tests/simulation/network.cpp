#include "simulation/network.hpp"

#include <algorithm>

namespace dslaunch::simulation {

using namespace std::chrono_literals;

void Network::cut(const std::string& from, const std::string& to) {
  if (from != to) cuts_.insert({from, to});
}

void Network::mend(const std::string& from, const std::string& to) {
  if (cuts_.erase({from, to}) == 0) return;
  for (auto& event : std::exchange(waiting_[{from, to}], {})) clock_.at(clock_.now(), std::move(event));
}

Duration Network::latency(const std::string& from, const std::string& to) {
  if (from == to) return random_.between(2us, 30us);
  return random_.one_in(20) ? random_.between(5ms, 400ms) : random_.between(50us, 3ms);  // a lost packet, else none
}

void Network::when_open(const std::string& from, const std::string& to, std::function<void()> event) {
  if (!is_cut(from, to)) return event();
  waiting_[{from, to}].push_back(std::move(event));
}

void Network::send(const std::string& from, const std::string& to, std::function<void()> arrive) {
  clock_.after(latency(from, to),
               [this, from, to, arrive = std::move(arrive)]() mutable { when_open(from, to, std::move(arrive)); });
}

long Stream::write(std::string_view bytes) {
  if (reader_is_gone_) return -1;
  const size_t taken = std::min(bytes.size(), room());
  for (std::string_view rest = bytes.substr(0, taken); !rest.empty();) {
    const auto length = static_cast<size_t>(random_.one_in(4) ? random_.between(1, static_cast<int64_t>(rest.size()))
                                                              : static_cast<int64_t>(rest.size()));
    num_in_flight_ += length;
    arrive_in_order([this, piece = std::string(rest.substr(0, length))] {
      num_in_flight_ -= piece.size();
      if (!has_ended_) arrived_ += piece;
    });
    rest.remove_prefix(length);
  }
  return static_cast<long>(taken);
}

void Stream::arrive_in_order(std::function<void()> what) {
  last_arrival_ = std::max(last_arrival_, clock_.now() + network_.latency(from_, to_));
  clock_.at(last_arrival_, [self = shared_from_this(), what = std::move(what)] {
    self->network_.when_open(self->from_, self->to_, [self, what] {
      what();
      self->on_readable();
    });
  });
}

long Stream::read(char* into, size_t most) {
  if (arrived_.empty()) return has_ended_ ? 0 : -1;
  const size_t length = std::min(most, arrived_.size());
  std::copy_n(arrived_.data(), length, into);
  arrived_.erase(0, length);
  on_writable();
  return static_cast<long>(length);
}

void Stream::close_writer() {
  if (std::exchange(writer_is_closed_, true)) return;
  arrive_in_order([this] { has_ended_ = true; });
}

void Stream::close_reader() {
  network_.send(to_, from_, [self = shared_from_this()] {
    self->reader_is_gone_ = true;
    self->on_writable();
  });
}

void Stream::break_off() {
  has_ended_ = true;
  on_readable();
}

}  // namespace dslaunch::simulation
