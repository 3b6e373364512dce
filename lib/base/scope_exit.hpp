// Runs a function at the end of a scope, also when an exception ends it.
#pragma once
#include <utility>

namespace dslaunch {

template <class Act>
class [[nodiscard]] ScopeExit {
 public:
  explicit ScopeExit(Act act) : act_(std::move(act)) {}
  ~ScopeExit() { act_(); }  // must not throw
  ScopeExit(const ScopeExit&) = delete;
  ScopeExit& operator=(const ScopeExit&) = delete;

 private:
  Act act_;
};

}  // namespace dslaunch
