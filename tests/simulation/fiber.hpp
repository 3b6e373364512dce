// A call chain on a stack of its own, which pauses in the middle and is resumed: several processes' code runs in one
// thread. One thread.
#pragma once
#include <ucontext.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>

namespace dslaunch::simulation {

class Fiber {
 public:
  // `body` must not throw.
  explicit Fiber(std::function<void()> body);
  // The body has ended: what stands on its stack is not destroyed otherwise.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it pauses or ends.
  void resume();
  // Within the body: back to the caller of resume().
  void pause();
  bool has_ended() const { return has_ended_; }

 private:
  static void enter(unsigned high, unsigned low);
  void swap_exceptions();

  std::function<void()> body_;
  std::unique_ptr<std::byte[]> stack_;
  ucontext_t own_{}, caller_{};
  // The C++ runtime's record of exceptions in flight belongs to a thread; here each fiber has its own.
  std::array<std::byte, 16> exceptions_{};
  bool has_ended_ = false;
};

}  // namespace dslaunch::simulation
