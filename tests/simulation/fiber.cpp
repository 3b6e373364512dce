#include "simulation/fiber.hpp"

#include <cxxabi.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace dslaunch::simulation {
namespace {

constexpr size_t kStackBytes = 256U << 10;

// Stacks of fibers that have ended, for the next ones: fresh memory would cost more than most simulations.
std::vector<std::unique_ptr<std::byte[]>>& spare_stacks() {
  static std::vector<std::unique_ptr<std::byte[]>> stacks;
  return stacks;
}

std::unique_ptr<std::byte[]> take_stack() {
  auto& spare = spare_stacks();
  if (spare.empty()) return std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  auto stack = std::move(spare.back());
  spare.pop_back();
  return stack;
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), stack_(take_stack()) {
  ::getcontext(&own_);
  own_.uc_stack.ss_sp = stack_.get();
  own_.uc_stack.ss_size = kStackBytes;
  own_.uc_link = &caller_;
  const auto address = reinterpret_cast<uintptr_t>(this);  // makecontext passes ints
  ::makecontext(&own_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(address >> 32U),
                static_cast<unsigned>(address));
}

Fiber::~Fiber() {
  spare_stacks().push_back(std::move(stack_));
}

void Fiber::enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32U | low);
  self->body_();
  self->has_ended_ = true;
}

void Fiber::resume() {
  swap_exceptions();
  ::swapcontext(&caller_, &own_);
  swap_exceptions();
}

void Fiber::pause() {
  ::swapcontext(&own_, &caller_);
}

void Fiber::swap_exceptions() {
  std::array<std::byte, sizeof exceptions_> mine{};
  void* globals = abi::__cxa_get_globals();
  std::memcpy(mine.data(), globals, mine.size());
  std::memcpy(globals, exceptions_.data(), exceptions_.size());
  exceptions_ = mine;
}

}  // namespace dslaunch::simulation
