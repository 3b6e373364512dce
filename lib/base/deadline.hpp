// A point in time until which a call may block. Every blocking call in this tree takes a deadline.
#pragma once
#include <chrono>

namespace dslaunch {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline after(std::chrono::milliseconds duration) { return Deadline(Clock::now() + duration); }
  static Deadline at(Clock::time_point when) { return Deadline(when); }
  static Deadline never() { return Deadline(Clock::time_point::max()); }

  bool is_never() const { return when_ == Clock::time_point::max(); }
  bool passed() const { return !is_never() && Clock::now() >= when_; }
  // Time left, never negative. For never(): a hundred years, so that the caller may add a little without overflow.
  std::chrono::milliseconds left() const;
  // The last argument of poll(2), at most a day: a caller that waits longer is woken once a day.
  int poll_timeout() const;
  Clock::time_point when() const { return when_; }
  // An earlier deadline compares less; never() is the greatest.
  friend bool operator<(const Deadline& a, const Deadline& b) { return a.when_ < b.when_; }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace dslaunch
